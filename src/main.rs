//! `istio-iptables`: parse, run, exit.
#![no_main]

use istio_iptables::program;

istio_iptables::entry_point!(|words| program::main(&words, None));
