//! Go templates.
