"""Result tables with bootstrap intervals and paired tests, and pages of findings."""
