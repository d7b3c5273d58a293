//! Any template: text or an error, in bounded time and memory.
#![no_main]

use gotemplate::{Limits, Options, Template, Value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let functions = sidecar_injector::inject::functions(|_| None);
    if let Ok(template) = Template::parse("fuzz", text, &functions, Options::default()) {
        let data = serde_json::json!({"a": {"b": [1, "x", null, true, 1.5]}, "labels": {"app": "web"}});
        let _ = template.render(Value::any(&data), Limits::default());
    }
});
