//! A rolling update while pods are created.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::control_plane::Cluster;
use crate::installation::{Installation, is_injected};
use crate::replica::Replica;

/// How many pods each of two clients creates at least.
const CREATED: usize = 50;

pub(crate) fn no_pod_is_lost_in_a_rolling_update(cluster: &Cluster) {
    let mut installation = Installation::new(cluster, &[]);
    let namespace = installation.injected_namespace("shop");
    let mut old = vec![Replica::start(&installation, 1), Replica::start(&installation, 2)];
    installation.until_injecting(&namespace);
    let over = AtomicBool::new(false);
    let installation = &installation;
    let counts = std::thread::scope(|scope| {
        let creates = || {
            let mut created = 0_usize;
            // On a slow machine some are created after the update: it is not a test of speed.
            while !over.load(Ordering::Relaxed) || created < CREATED {
                let pod = installation
                    .create_pod(&namespace)
                    .unwrap_or_else(|rejected| panic!("pod {created}: {rejected:?}"));
                assert!(is_injected(&pod), "pod {created}");
                created += 1;
            }
            created
        };
        let loops = [scope.spawn(creates), scope.spawn(creates)];
        // As the Deployment's strategy: a new one is ready before an old one goes.
        let mut new = Vec::new();
        for number in 3..=4 {
            new.push(Replica::start(installation, number));
            old.remove(0).stop();
        }
        over.store(true, Ordering::Relaxed);
        loops.map(|creates| creates.join().expect("no pod was lost"))
    });
    println!("rolling update: {} pods created, all injected", counts.iter().sum::<usize>());
}
