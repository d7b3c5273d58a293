//! Packets that take long from one table to the next: what a run changes, it changes while one is there.

use super::Pod;
use super::program::tool;

/// Has packets that meet `test` take one or two milliseconds between mangle and nat in each of these hooks,
/// as long lists of another program do.
pub(crate) fn slow_down(pod: &Pod, test: &str, hooks: &[&str]) {
    const LEVELS: usize = 5;
    let chain = |level: usize| {
        let jumps = format!("jump level{}\n", level + 1).repeat(10);
        format!("chain level{level} {{ {jumps} }}\n")
    };
    let chains: String = (0..LEVELS).rev().map(chain).collect();
    let base = |hook: &&str| {
        format!("chain {hook} {{ type filter hook {hook} priority -120; {test} jump level0\n }}\n")
    };
    let hooks: String = hooks.iter().map(base).collect();
    let table = format!("table inet slow {{ chain level{LEVELS} {{ }}\n {chains} {hooks} }}");
    pod.namespace.run(|| tool("nft", &["-f", "-"], &table));
}
