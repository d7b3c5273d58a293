//! Containers with names of Istio's that the pod has itself come back where they were.

use serde_json::{Value, json};
use sidecar_injector::inject::InjectionContext;

use super::losses::sorted;
use super::{INJECTORS, injected, uninjected};

#[test]
fn own_containers_of_istio_s_names_come_back_where_they_were() {
    let proxy = || json!({"name": "istio-proxy", "image": "auto"});
    let init = || json!({"name": "istio-init", "image": "own:1"});
    let app = |name: &str| json!({"name": name, "image": "i"});
    let cases: [(Vec<Value>, Vec<Value>); 8] = [
        (vec![app("first"), proxy(), app("last")], vec![app("web")]),
        (vec![proxy(), app("last")], vec![app("web")]),
        (vec![app("first"), app("last"), proxy()], vec![app("web")]),
        (vec![], vec![app("web"), proxy(), app("b")]),
        (vec![], vec![proxy(), app("web"), app("b")]),
        (vec![app("first"), init(), app("last")], vec![app("web")]),
        (vec![init(), app("first"), proxy(), app("last")], vec![app("web")]),
        (vec![app("first"), init(), app("last")], vec![app("web"), proxy(), app("b")]),
    ];
    for (init, apps) in cases {
        let pod = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": apps, "initContainers": init}});
        for native_sidecars in [true, false] {
            let context = InjectionContext { native_sidecars, ..InjectionContext::default() };
            let once = injected(&INJECTORS[0], &pod, &context);
            let twice = injected(&INJECTORS[0], &once, &context);
            assert_eq!(twice.to_string(), once.to_string());
            for again in [once, sorted(&twice)] {
                let out = uninjected(&INJECTORS[0], &again, &context);
                let lists = |pod: &Value| {
                    let names = |list: &str| {
                        let items = pod["spec"][list].as_array().into_iter().flatten();
                        items.map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
                    };
                    [names("initContainers"), names("containers")]
                };
                assert_eq!(lists(&out.pod), lists(&pod), "native {native_sidecars}: {:?}", out.left);
                assert!(!out.left.iter().any(|left| left.contains("not recorded")), "{:?}", out.left);
            }
        }
    }
}
