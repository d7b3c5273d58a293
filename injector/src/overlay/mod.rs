//! Strategic merge patch, and the YAML and quantities it needs.
