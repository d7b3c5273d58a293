//! `printf`: the verbs for numbers.

use crate::builtin::print::{escape, general};
use crate::builtin::printf::{Done, Printer, Spec};
use crate::value::Value;
use crate::value::text::too_long;

impl Spec {
    const fn sign(self, negative: bool) -> &'static str {
        match (negative, self.plus, self.blank) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (.., true) => " ",
            _ => "",
        }
    }
}

impl<'a> Printer<'_, 'a> {
    pub(crate) fn integer(&mut self, verb: char, spec: Spec, n: i64, value: &Value<'a>) -> Done {
        let magnitude = n.unsigned_abs();
        let c = u32::try_from(n).ok().and_then(char::from_u32).unwrap_or('\u{fffd}');
        let (digits, prefix) = match verb {
            'd' | 'v' => (magnitude.to_string(), ""),
            'b' => (format!("{magnitude:b}"), if spec.sharp { "0b" } else { "" }),
            'o' => (format!("{magnitude:o}"), if spec.sharp { "0" } else { "" }),
            'O' => (format!("{magnitude:o}"), "0o"),
            'x' => (format!("{magnitude:x}"), if spec.sharp { "0x" } else { "" }),
            'X' => (format!("{magnitude:X}"), if spec.sharp { "0X" } else { "" }),
            'c' => return self.pad(&c.to_string(), spec, None),
            'q' => {
                let shown = c.to_string();
                let text = escape(&shown, '\'', spec.plus);
                return self.pad(&format!("'{text}'"), spec, None);
            }
            'U' => return self.pad(&format!("U+{magnitude:04X}"), spec, None),
            _ if matches!(value, Value::Enum(..)) => {
                return self.out.plain(&format!("%!{verb}({}={n})", value.type_name()));
            }
            _ => return self.bad(verb, spec, value),
        };
        self.number(spec.sign(n < 0), prefix, &digits, spec)
    }

    /// Sign, prefix and digits; zeros go between prefix and digits.
    fn number(&mut self, sign: &str, prefix: &str, digits: &str, spec: Spec) -> Done {
        let digits_wanted = match spec.precision {
            Some(0) if digits == "0" => return self.pad("", Spec { zero: false, ..spec }, None),
            Some(p) => p,
            None if spec.zero && !spec.minus => spec.width.unwrap_or_default().saturating_sub(sign.len()),
            None => 0,
        };
        if digits_wanted > self.out.remaining() {
            return Err(too_long(self.out.remaining()));
        }
        let digits = format!("{digits:0>digits_wanted$}");
        self.pad(&format!("{sign}{prefix}{digits}"), Spec { zero: false, ..spec }, None)
    }

    pub(crate) fn float(&mut self, verb: char, spec: Spec, n: f64, value: &Value<'a>) -> Done {
        let exponent = |text: String| {
            let (mantissa, e) =
                text.split_once('e').map(|(m, e)| (m.to_owned(), e.to_owned())).unwrap_or_default();
            let e: i32 = e.parse().unwrap_or_default();
            format!("{mantissa}e{}{:02}", if e < 0 { '-' } else { '+' }, e.unsigned_abs())
        };
        let precision = spec.precision.map(|p| p.min(400));
        let text = match verb {
            'f' | 'F' => format!("{n:.*}", precision.unwrap_or(6)),
            'e' => exponent(format!("{n:.*e}", precision.unwrap_or(6))),
            'E' => exponent(format!("{n:.*e}", precision.unwrap_or(6))).to_uppercase(),
            'b' => binary(n),
            'v' | 'g' => general(n, precision, 6, 'e'),
            'G' => general(n, precision, 6, 'E'),
            _ => return self.bad(verb, spec, value),
        };
        let text = if n.is_finite() { text } else { general(n, None, 6, 'e') };
        let bare = text.trim_start_matches(['-', '+']);
        let sign = match spec.sign(text.starts_with('-')) {
            "" if text.starts_with('+') => "+",
            sign => sign,
        };
        self.number(sign, "", bare, Spec { precision: None, ..spec })
    }
}

/// `%b`: a whole mantissa and a power of two.
fn binary(n: f64) -> String {
    let bits = n.to_bits();
    let (exponent, fraction) = ((bits >> 52) & 0x7ff, bits & ((1 << 52) - 1));
    let (exponent, mantissa) = if exponent == 0 { (1, fraction) } else { (exponent, fraction | (1 << 52)) };
    let power = i64::try_from(exponent).unwrap_or_default() - 1075;
    format!("{}{mantissa}p{power:+}", if n.is_sign_negative() { "-" } else { "" })
}
