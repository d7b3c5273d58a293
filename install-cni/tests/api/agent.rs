//! The agent with a kubeconfig for the API server in small.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::node::Node;
use crate::server::Server;

impl Node {
    pub(crate) fn start(server: &Server) -> Self {
        Self::start_by(|program| command(program, server))
    }

    pub(crate) fn restart(&mut self, server: &Server) {
        self.restart_by(|program| command(program, server));
    }
}

fn command(program: &Path, server: &Server) -> Command {
    let kubeconfig = program.with_file_name("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": format!("http://{}", server.address)}}],
        "users": [{"name": "x", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}]
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let mut command = Command::new(program);
    command.args(["--node-name=node-1", "--log-level=debug"]);
    command.arg(format!("--kubeconfig={}", kubeconfig.display()));
    command
}
