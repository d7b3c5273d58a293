//! Whatever a template says: text or an error, in bounded time and memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidecar_injector::template::{Functions, Limits, Options, Template, Value};

fuzz_target!(|text: &str| {
    let functions = Functions::injection(|_| None);
    if let Ok(template) = Template::parse("fuzz", text, &functions, Options::default()) {
        let data = serde_json::json!({"a": {"b": [1, "x", null, true, 1.5]}, "labels": {"app": "web"}});
        let _ = template.render(Value::any(&data), Limits::default());
    }
});
