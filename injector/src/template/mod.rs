//! Injection templates: the functions that Istio adds (they replace sprig's of the same name), and the data.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "most functions fit few sorts of values and reject all others"
)]

mod data;
mod key;
mod meta;
mod ports;

pub(crate) use data::Data;

use gotemplate::json::{COMPACT, Style, encode, to_json};
use gotemplate::{Call, Functions, Map, Str, Type, Value, arg, text_of};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::yaml;

type ValueResult<'a> = Result<Value<'a>, String>;

/// Go's names of the struct types that the functions take.
mod types {
    use crate::schema;

    pub(super) const OBJECT_META: &str = schema::OBJECT_META.name;
    pub(super) const CONTAINER: &str = schema::CONTAINER.name;
    pub(super) const PROXY_CONFIG: &str = schema::mesh::PROXY_CONFIG.name;
}

const STR: Type = Type::Str;
const ANY: Type = Type::Any;

/// What `protoToJSON` leaves out of a proxy config: fields at the value that every proxy has anyway.
const PROXY_DEFAULTS: [(&str, &str); 10] = [
    ("configPath", "\"./etc/istio/proxy\""),
    ("binaryPath", "\"/usr/local/bin/envoy\""),
    ("serviceCluster", "\"istio-proxy\""),
    ("drainDuration", "\"45s\""),
    ("terminationDrainDuration", "\"5s\""),
    ("discoveryAddress", "\"istiod.istio-system.svc:15012\""),
    ("proxyAdminPort", "15000"),
    ("controlPlaneAuthPolicy", "\"MUTUAL_TLS\""),
    ("statNameLength", "189"),
    ("statusPort", "15020"),
];

/// What injection templates may call: Go's built-in functions, sprig's, Istio's. `env` looks up an
/// environment variable for the template function of that name; dates are those of the system's clock, until
/// another one is added.
#[must_use]
pub fn functions(env: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Functions {
    let mut functions = Functions::builtin();
    functions.add_sprig();
    functions.add_clock(SystemTime::now);
    let f = &mut functions;
    f.add("env", &[STR, STR], None, move |_, args| {
        let found = env(str_arg(args, 0)).filter(|value| !value.is_empty());
        Ok(found.map_or_else(|| arg(args, 1).clone(), Value::string))
    });
    meta::register(f);
    ports::register(f);
    f.add("formatDuration", &[Type::Duration], None, |_, args| {
        let Value::Duration(nanos) = arg(args, 0) else {
            return Ok(Value::string("0s"));
        };
        Ok(Value::string(goduration::format(*nanos)))
    });
    f.add("valueOrDefault", &[ANY, ANY], None, |_, args| match arg(args, 0) {
        Value::Nil | Value::Null => Ok(arg(args, 1).clone()),
        Value::Str(s) if s.as_str().is_empty() => Ok(arg(args, 1).clone()),
        other => Ok(other.clone()),
    });
    f.add("indent", &[Type::Int, STR], None, indent);
    f.add("directory", &[STR], None, |_, args| {
        let Value::Str(path) = arg(args, 0) else {
            return Ok(Value::Nil);
        };
        let end = path.as_str().rfind('/').map_or(0, |at| at + 1);
        Ok(Value::Str(path.slice(0, end)))
    });
    f.add("contains", &[STR, STR], None, |_, args| {
        Ok(Value::Bool(str_arg(args, 1).contains(str_arg(args, 0))))
    });
    f.add("toLower", &[STR], None, |_, args| {
        let Value::Str(s) = arg(args, 0) else {
            return Ok(Value::Nil);
        };
        Ok(Value::Str(Str::derived(s.as_str().to_lowercase(), &[s])))
    });
    data_functions(f);
    functions
}

fn data_functions(f: &mut Functions) {
    f.add("toJSON", &[Type::StrMap], None, |call, args| object_json(call, arg(args, 0)));
    f.add("structToJSON", &[ANY], None, |call, args| object_json(call, arg(args, 0)));
    f.add("protoToJSON", &[Type::Message], None, proto_json);
    f.add("fromJSON", &[STR], None, |call, args| {
        let Value::Str(text) = arg(args, 0) else {
            return Ok(Value::Nil);
        };
        call.spend(text.as_str().len().saturating_mul(16))?;
        // A mistake gives the text `{}`, not an empty map: ranging over it is the error that the user sees.
        Ok(match serde_json::from_str::<Json>(text.as_str()) {
            Ok(json) => Value::from_owned_json(&json, text),
            Err(_) => Value::string("{}"),
        })
    });
    f.add("toYaml", &[ANY], None, |call, args| {
        let mut json = to_json(call, arg(args, 0))?;
        json.sort_all_objects();
        Ok(Value::string(yaml::write(&json)))
    });
    f.add("omit", &[Type::StrMap], Some(STR), |_, args| {
        let mut entries = str_entries(arg(args, 0));
        for key in args.iter().skip(1).filter_map(Value::as_str) {
            entries.remove(key.as_str());
        }
        Ok(Value::map_of(entries, "string"))
    });
    f.add("strdict", &[], Some(STR), |_, args| {
        let mut entries = BTreeMap::new();
        for pair in args.chunks(2) {
            let value = pair.get(1).cloned().unwrap_or_else(|| Value::Str(Str::borrowed("")));
            if let Some(Value::Str(key)) = pair.first() {
                entries.insert(key.clone(), value);
            }
        }
        Ok(Value::map_of(entries, "string"))
    });
    f.add("mergeMaps", &[], Some(Type::StrMap), |_, args| Ok(merged(args)));
    f.add("toJsonMap", &[], Some(Type::StrMap), |call, args| object_json(call, &merged(args)));
    f.add("omitNil", &[ANY], None, |call, args| Ok(omit_nil(call, arg(args, 0), 0)?.unwrap_or(Value::Nil)));
}

/// The text of a string argument.
fn str_arg<'v>(args: &'v [Value<'_>], index: usize) -> &'v str {
    args.get(index).and_then(Value::as_str).map_or("", Str::as_str)
}

fn object_json<'a>(call: &mut Call<'_>, value: &Value<'a>) -> ValueResult<'a> {
    Ok(Value::string(match to_json(call, value)? {
        Json::Null => "{}".to_owned(),
        json => encode(&json, COMPACT),
    }))
}

fn proto_json<'a>(call: &mut Call<'_>, args: &[Value<'a>]) -> ValueResult<'a> {
    let message = arg(args, 0);
    let mut json = to_json(call, message)?;
    let is_proxy_config = matches!(message, Value::Struct(s) if s.schema.name == types::PROXY_CONFIG);
    if let (true, Json::Object(fields)) = (is_proxy_config, &mut json) {
        fields.retain(|key, value| {
            let text = encode(value, COMPACT);
            !PROXY_DEFAULTS.iter().any(|(k, default)| key == k && text == *default)
        });
    }
    let style = Style { escape_html: false, indent: None };
    Ok(Value::string(if json.is_null() { "{}".to_owned() } else { encode(&json, style) }))
}

/// Leaves the first line alone; every other one, also an empty one, gets the blanks.
fn indent<'a>(call: &mut Call<'_>, args: &[Value<'a>]) -> ValueResult<'a> {
    let (Value::Int(width, _), Value::Str(text)) = (arg(args, 0), arg(args, 1)) else {
        return Ok(Value::Nil);
    };
    // Go pads an empty string to the width: a negative one pads as well.
    let width = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
    let lines = text.as_str().matches('\n').count();
    call.spend(lines.saturating_mul(width))?;
    let blanks = " ".repeat(if lines == 0 { 0 } else { width });
    let mut out = call.text();
    for (i, line) in text.as_str().split('\n').enumerate() {
        if i > 0 {
            out.plain("\n")?;
            out.plain(&blanks)?;
        }
        out.push(&text.part(line))?;
    }
    Ok(Value::Str(out.finish()))
}

fn str_entries<'a>(value: &Value<'a>) -> BTreeMap<Str<'a>, Value<'a>> {
    match value {
        Value::Map(map) => map.entries().into_iter().collect(),
        _ => BTreeMap::new(),
    }
}

fn merged<'a>(maps: &[Value<'a>]) -> Value<'a> {
    Value::map_of(maps.iter().flat_map(str_entries).collect(), "string")
}

/// Without nulls, and without the maps and lists that become empty by that; `None` when nothing is left.
fn omit_nil<'a>(call: &mut Call<'_>, value: &Value<'a>, depth: usize) -> Result<Option<Value<'a>>, String> {
    call.nest(depth)?;
    match value {
        Value::Nil | Value::Null | Value::NilPtr(_) => Ok(None),
        Value::Map(map) if map.elem_name() == "interface {}" && !map.is_empty() => {
            let mut kept = BTreeMap::new();
            for (key, value) in map.entries() {
                if let Some(value) = omit_nil(call, &value, depth + 1)? {
                    kept.insert(key, value);
                }
            }
            Ok((!kept.is_empty()).then(|| Value::dict(kept)))
        }
        Value::List(list) if list.elem_name() == "interface {}" && !list.is_empty() => {
            let mut kept = Vec::new();
            for item in list.to_vec() {
                kept.extend(omit_nil(call, &item, depth + 1)?);
            }
            Ok((!kept.is_empty()).then(|| Value::list(kept)))
        }
        other => Ok(Some(other.clone())),
    }
}

/// The value of a map or of a struct's field that is a map.
fn map_of<'v, 'a>(value: &'v Value<'a>) -> Option<&'v Map<'a>> {
    match value {
        Value::Map(map) => Some(map),
        _ => None,
    }
}

/// A field of a struct, whichever way the struct was made.
fn field<'a>(value: &Value<'a>, name: &str) -> Value<'a> {
    match value {
        Value::Struct(s) => s.schema.field(name).map_or(Value::Nil, |f| s.value(f)),
        Value::Record(r) => r.get(name).cloned().unwrap_or(Value::Nil),
        _ => Value::Nil,
    }
}

/// `fmt.Sprint`
fn sprint_one<'a>(call: &Call<'_>, value: &Value<'a>) -> Result<Str<'a>, String> {
    text_of(call.text(), value)
}
