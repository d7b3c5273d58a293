//! How long an injection takes, in process: `cargo test --release --test speed -- --ignored --nocapture`.
#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "tests"
)]

mod builtin;

use std::time::Instant;

use builtin::{deployment, inject, injector};
use serde_json::{Value, json};

fn median_ms(times: usize, mut work: impl FnMut()) -> f64 {
    let mut all: Vec<f64> = (0..times)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64() * 1000.0
        })
        .collect();
    all.sort_by(f64::total_cmp);
    all[times / 2]
}

#[test]
#[ignore = "figures of a release build"]
fn figures() {
    let injector = injector();
    let mut large = deployment();
    let env: Vec<Value> =
        (0..2000).map(|n| json!({"name": format!("V{n}"), "value": format!("x{n}")})).collect();
    large["spec"]["containers"][0]["env"] = json!(env);
    let small = median_ms(200, || drop(inject(&injector, &deployment()).unwrap()));
    let large = median_ms(50, || drop(inject(&injector, &large).unwrap()));
    let load = median_ms(50, || drop(builtin::injector()));
    println!(
        "one container {small:.3} ms, 2000 variables {large:.3} ms, loading the built-in config {load:.3} ms"
    );
    assert!(small < 0.5 && large < 5.0 && load < 5.0);
}
