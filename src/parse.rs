//! `iptables-save` output into the model.
