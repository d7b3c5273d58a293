//! Methods without arguments: of generated protobuf code, and of the Kubernetes types that templates call.

use crate::value::quantity::{self, QUANTITY};
use crate::value::schema::{Field, Kind, Schema, enum_name};
use crate::value::text::Str;
use crate::value::{IntType, Map, Record, Value};

/// Go types outside protobuf whose fields have getters, too.
const WITH_GETTERS: [&str; 1] = ["v1.ObjectMeta"];

/// Methods of `v1.ResourceList`: each returns the quantity of this resource.
const RESOURCES: [(&str, &str); 5] = [
    ("Cpu", "cpu"),
    ("Memory", "memory"),
    ("Pods", "pods"),
    ("Storage", "storage"),
    ("StorageEphemeral", "ephemeral-storage"),
];

const SECOND: i64 = 1_000_000_000;

/// The result of the method `name`; `None` if the type has none of that name.
pub(super) fn method<'a>(value: &Value<'a>, name: &str) -> Option<Value<'a>> {
    match value {
        Value::Enum(ty, number) if name == "String" => Some(Value::string(enum_name(ty, *number))),
        Value::Enum(_, number) if name == "Number" => Some(Value::Int(i64::from(*number), IntType::Int32)),
        Value::Wrapper(inner) if name == "GetValue" => Some((**inner).clone()),
        Value::NilPtr(Kind::Wrapper(inner)) if name == "GetValue" => Some(Value::typed(None, inner, None)),
        Value::Duration(nanos) => of_duration(*nanos, name),
        Value::NilPtr(Kind::Duration) if name != "Seconds" && name != "Nanos" => of_duration(0, name),
        Value::Struct(s) if s.schema.proto || WITH_GETTERS.contains(&s.schema.name) => {
            getter(s.schema, name).map(|field| s.value(field))
        }
        Value::NilPtr(Kind::Struct(schema)) if schema.proto => {
            getter(schema, name).map(|field| Value::typed(None, &field.kind, None))
        }
        Value::Map(map) => resource(map, name),
        Value::Record(record) if name == "String" => text_of(record),
        _ => None,
    }
}

fn getter(schema: &'static Schema, name: &str) -> Option<&'static Field> {
    schema.field(name.strip_prefix("Get")?)
}

/// `fmt.Stringer`, unless `String` is a field.
fn text_of<'a>(record: &Record<'a>) -> Option<Value<'a>> {
    record.text.clone().filter(|_| record.get("String").is_none()).map(Value::Str)
}

/// `*durationpb.Duration`
fn of_duration<'a>(nanos: i64, name: &str) -> Option<Value<'a>> {
    Some(match name {
        "AsDuration" => duration(nanos),
        "Seconds" | "GetSeconds" => Value::int64(nanos / SECOND),
        "Nanos" | "GetNanos" => Value::Int(nanos % SECOND, IntType::Int32),
        "IsValid" => Value::Bool(true),
        _ => return None,
    })
}

/// `time.Duration`, with its methods as fields.
#[allow(clippy::cast_precision_loss, reason = "Go converts to float64, too")]
fn duration<'a>(nanos: i64) -> Value<'a> {
    let float = |unit: i64| Value::Float(nanos as f64 / unit as f64);
    let fields = vec![
        ("Hours", float(SECOND * 3600)),
        ("Minutes", float(SECOND * 60)),
        ("Seconds", float(SECOND)),
        ("Milliseconds", Value::int64(nanos / 1_000_000)),
        ("Microseconds", Value::int64(nanos / 1000)),
        ("Nanoseconds", Value::int64(nanos)),
    ];
    Value::printed_record("time.Duration", fields, goduration::format(nanos).into())
}

/// The quantity of a resource; zero if there is none.
fn resource<'a>(map: &Map<'a>, name: &str) -> Option<Value<'a>> {
    let Map::Json { elem: Kind::Named(QUANTITY, _), .. } = map else { return None };
    let (_, key) = RESOURCES.iter().find(|(method, _)| *method == name)?;
    Some(map.get(key).unwrap_or_else(|| quantity::of(Str::borrowed("0"))))
}
