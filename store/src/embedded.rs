//! SQLite tables.
