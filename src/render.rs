//! Rules into the text that `iptables-restore` reads.
