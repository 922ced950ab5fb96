"""Requests and responses: access, validation, endpoints, the OpenAPI document and the pages."""
