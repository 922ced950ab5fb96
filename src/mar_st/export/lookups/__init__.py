"""The formats of exported lookup encoders, one module each: a new module here is a new format."""
