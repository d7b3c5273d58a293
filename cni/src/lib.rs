//! The CNI plugin `istio-cni`: captures a pod's traffic when the container runtime sets up its network, so
//! that no container of the pod needs privileges.
//!
//! It decides whether a pod is captured and with which options; rules are made, written and compared by
//! `istio_iptables`.
//!
//! ```
//! use istio_cni::netconf::NetConf;
//! use istio_cni::plugin;
//!
//! // What a container runtime passes on standard input.
//! let conf = NetConf::parse(br#"{"cniVersion": "1.0.0", "name": "mesh", "type": "istio-cni"}"#)?;
//! plugin::validated(&conf)?;
//! let misspelt = NetConf::parse(br#"{"cniVersion": "1.0.0", "name": "mesh", "backend": "nft"}"#)?;
//! let error = plugin::validated(&misspelt).expect_err("no such backend");
//! assert!(error.msg.contains("nftables"), "{}", error.msg);
//! # Ok::<(), istio_cni::error::CniError>(())
//! ```
//!
//! The modules are listed in the order in which the data flows; none imports from a later
//! one.

pub mod version;

pub mod error;

pub mod environment;
pub mod go_json;
pub mod netconf;

pub mod pod;

pub mod capture;
pub mod decide;

pub mod deadline;

pub mod unix_socket;

pub mod lookup;
pub mod source;

pub mod state;

pub mod compare;

pub mod loopback;
pub mod namespace;

pub mod log_sink;

pub mod plugin;

pub mod output;

pub mod usage;

pub mod install;
