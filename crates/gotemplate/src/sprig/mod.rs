//! The text functions of sprig 3.3. Functions that need a network, random numbers or cryptography are known
//! by name, so that templates with them parse, but fail when called; so do functions that need the clock,
//! unless there is one (`Functions::add_clock`).

mod cases;
mod convert;
mod data;
mod defaults;
mod dicts;
mod encode;
mod lists;
mod math;
mod paths;
mod regex;
mod semver;
mod strings;
mod times;
mod words;

use crate::builtin::print::text_of;
use crate::functions::{Call, Functions, Type, arg};
use crate::value::Value;
use crate::value::text::Str;

type ValueResult<'a> = Result<Value<'a>, String>;

/// A change of text.
type Change = fn(&str) -> String;

const ANY: Type = Type::Any;
const STR: Type = Type::Str;
const INT: Type = Type::Int;
const DICT: Type = Type::AnyMap;

/// Names, and the reason why they are not available.
const UNAVAILABLE: [(&str, &str); 3] = [
    (
        "randAlphaNum randAlpha randAscii randNumeric randBytes randInt shuffle uuidv4",
        "it needs random numbers: rendering twice must give the same text",
    ),
    (
        "bcrypt htpasswd genPrivateKey derivePassword buildCustomCert genCA genCAWithKey genSelfSignedCert \
         genSelfSignedCertWithKey genSignedCert genSignedCertWithKey encryptAES decryptAES",
        "it needs cryptography, which is not part of this engine",
    ),
    ("getHostByName env expandenv", "it needs the network or the environment"),
];

impl Functions {
    /// Adds sprig's text functions. Its `slice` replaces Go's.
    pub fn add_sprig(&mut self) {
        for (names, reason) in UNAVAILABLE {
            for name in names.split_whitespace() {
                self.add(name, &[], Some(ANY), move |_, _| Err(format!("not available: {reason}")));
            }
        }
        strings::register(self);
        words::register(self);
        convert::register(self);
        defaults::register(self);
        lists::register(self);
        dicts::register(self);
        data::register(self);
        math::register(self);
        encode::register(self);
        paths::register(self);
        regex::register(self);
        semver::register(self);
        times::register(self, times::without_clock());
    }
}

/// Adds functions from text to text that keep its origins.
fn add_changes<const N: usize>(f: &mut Functions, changes: [(&str, Change); N]) {
    for (name, change) in changes {
        f.add(name, &[STR], None, move |_, args| {
            let s = text(args, 0)?;
            made(change(s.as_str()), s)
        });
    }
}

/// The string argument at `index`.
fn text<'v, 'a>(args: &'v [Value<'a>], index: usize) -> Result<&'v Str<'a>, String> {
    arg(args, index).as_str().ok_or_else(|| "expected a string".to_owned())
}

/// The integer argument at `index`.
fn int(args: &[Value<'_>], index: usize) -> i64 {
    match arg(args, index) {
        Value::Int(n, _) => *n,
        _ => 0,
    }
}

/// The integer argument at `index` as a length; negative ones are errors, as they are panics in Go.
fn size(args: &[Value<'_>], index: usize, what: &str) -> Result<usize, String> {
    let n = int(args, index);
    usize::try_from(n).map_err(|_| format!("{what} is negative: {n}"))
}

/// Any value as a string, with its origins.
fn strval<'a>(call: &Call<'_>, value: &Value<'a>) -> Result<Str<'a>, String> {
    text_of(call.text(), value)
}

/// Text made out of one source.
fn made<'a>(text: impl Into<String>, source: &Str<'a>) -> ValueResult<'a> {
    Ok(Value::Str(Str::derived(text.into(), &[source])))
}

/// Go's reflect kind of a value.
fn kind(value: &Value<'_>) -> &'static str {
    match value {
        Value::Nil | Value::Null => "invalid",
        Value::NilPtr(_) | Value::Ptr(_) | Value::Duration(_) | Value::Wrapper(_) => "ptr",
        Value::Bool(_) => "bool",
        Value::Int(_, ty) => ty.name(),
        Value::Float(_) => "float64",
        Value::Str(_) => "string",
        Value::Enum(..) => "int32",
        Value::List(_) => "slice",
        Value::Map(_) => "map",
        Value::Struct(s) if s.pointer => "ptr",
        Value::Struct(_) | Value::Record(_) => "struct",
    }
}
