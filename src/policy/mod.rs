//! Capture configuration into rules.
