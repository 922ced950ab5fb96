"""SQL of the tables of a journal of judgements."""

from __future__ import annotations

from medteb_mteb.curation.llm.database import FAILURES_TABLE, SETTINGS_TABLE

__all__ = ["LATER_TABLES", "SCHEMA"]

#: Tables of every version.
SCHEMA = f"""
{FAILURES_TABLE}
CREATE TABLE accounts (judge TEXT PRIMARY KEY, answers INTEGER NOT NULL, tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL, cost REAL NOT NULL, estimated INTEGER NOT NULL, controls INTEGER NOT NULL,
    controls_failed INTEGER NOT NULL) WITHOUT ROWID;
{SETTINGS_TABLE}
"""

#: Tables that later versions added; the last two hold rows of earlier versions, none in a new journal.
LATER_TABLES = """
CREATE TABLE IF NOT EXISTS log (number INTEGER PRIMARY KEY, entry BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS unread (id BLOB PRIMARY KEY, settings BLOB NOT NULL, attempt INTEGER NOT NULL,
    control INTEGER NOT NULL, keys BLOB NOT NULL, ending TEXT NOT NULL, answer BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS judgements (key BLOB PRIMARY KEY, settings BLOB NOT NULL, grade TEXT NOT NULL,
    proof BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS places (key BLOB PRIMARY KEY, place INTEGER NOT NULL, shown INTEGER NOT NULL)
    WITHOUT ROWID;
"""
