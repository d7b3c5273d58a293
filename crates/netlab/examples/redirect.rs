//! A REDIRECT rule between two network namespaces, and where a connection arrives without and with it. Needs
//! root.

use netlab::{Listen, Namespace, User, process};

fn main() {
    let [client, server] = [(); 2].map(|()| Namespace::with_loopback());
    client.connect("eth0", &server, "eth0");
    client.add_address([10, 0, 0, 1].into(), 24, "eth0");
    server.add_address([10, 0, 0, 2].into(), 24, "eth0");
    let _app = User::new(&server, 1000, 1000).serve("app", &[Listen::Tcp(8080)]);
    let _proxy = User::new(&server, 1337, 1337).serve("proxy", &[Listen::Tcp(15006)]);
    let (caller, target) = (User::new(&client, 0, 0), ([10, 0, 0, 2], 8080).into());
    println!("without the rule: {}", caller.call(target).response());
    let rule = "-t nat -A PREROUTING -p tcp --dport 8080 -j REDIRECT --to-ports 15006";
    let words: Vec<&str> = rule.split(' ').collect();
    server.run(|| process::run("iptables", &words));
    println!("with the rule:    {}", caller.call(target).captured(15006, target).response());
}
