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

    /// The agent with more options.
    pub(crate) fn start_with(server: &Server, options: &[&str]) -> Self {
        Self::start_by(|program| {
            let mut command = command(program, server);
            command.args(options);
            command
        })
    }

    /// The agent as the first process of its own process namespace, as in a container.
    pub(crate) fn start_contained(server: &Server) -> Self {
        Self::start_by(|program| contained(program, server))
    }

    /// Another agent in the same directories.
    pub(crate) fn beside_contained(&self, server: &Server) -> Self {
        self.beside_by(|program| contained(program, server))
    }

    /// One that takes its entry out when it ends.
    pub(crate) fn start_to_uninstall(server: &Server) -> Self {
        Self::start_by(|program| {
            let mut command = command(program, server);
            command.arg("--uninstall");
            command
        })
    }

    pub(crate) fn restart(&mut self, server: &Server) {
        self.restart_by(|program| command(program, server));
    }
}

fn command(program: &Path, server: &Server) -> Command {
    let kubeconfig = program.with_file_name(format!("kubeconfig-{}", server.address.port()));
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": format!("http://{}", server.address)}}],
        "users": [{"name": "x", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}]
    });
    // Other agents may read it at this moment.
    if !kubeconfig.exists() {
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
    }
    let mut command = Command::new(program);
    command.args(["--node-name=node-1", "--log-level=debug"]);
    command.arg(format!("--kubeconfig={}", kubeconfig.display()));
    command
}

fn contained(program: &Path, server: &Server) -> Command {
    let agent = command(program, server);
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(program).args(agent.get_args());
    command
}
