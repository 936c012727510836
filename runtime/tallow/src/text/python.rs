//! What chat templates expect of Python: methods of `str` and `dict`, and `json.dumps` behind `tojson`. The templates are
//! written for Jinja inside Python; the engine has filters for most of it, but the templates call methods.
//!
//! Everything here pays fuel for its work before it does it, so that a hostile template cannot buy much with little.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Nested deeper than this, a value is refused.
const MAX_DEPTH: usize = 64;

/// How deep a value may be that a template keeps in a namespace.
const MAX_KEPT_DEPTH: usize = 16;

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// Pays for `bytes` bytes of work; 64 of them are one fuel, as in the engine.
fn pay(state: &State, bytes: usize) -> Result<(), Error> {
    state.consume_fuel(bytes as u64 / 64 + 1)
}

/// The method `name` of `value`, if Python has it and templates use it.
pub(crate) fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        pay(state, text.len())?;
        return string_method(state, text, name, args);
    }
    match value.kind() {
        ValueKind::Map => map_method(state, value, name, args),
        ValueKind::Seq if name == "count" || name == "index" => {
            let wanted = args.first().ok_or_else(|| Error::from(ErrorKind::MissingArgument))?;
            let (mut count, mut first) = (0, None);
            for (at, item) in value.try_iter()?.enumerate() {
                pay(state, 64)?;
                if item == *wanted {
                    count += 1;
                    first = first.or(Some(at));
                }
            }
            match (name, first) {
                ("count", _) => Ok(Value::from(count)),
                (_, Some(at)) => Ok(Value::from(at)),
                _ => Err(invalid(format!("{wanted} is not in the list"))),
            }
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn map_method(state: &State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let len = value.len().unwrap_or(0);
    match (name, args) {
        ("get", [key]) => {
            Ok(Some(value.get_item(key)?).filter(|found| !found.is_undefined()).unwrap_or(Value::from(())))
        }
        ("get", [key, default]) => {
            Ok(Some(value.get_item(key)?).filter(|found| !found.is_undefined()).unwrap_or(default.clone()))
        }
        ("keys", []) => {
            pay(state, 64 * len)?;
            Ok(value.try_iter()?.collect())
        }
        ("values", []) => {
            pay(state, 64 * len)?;
            value.try_iter()?.map(|key| value.get_item(&key)).collect::<Result<Value, Error>>()
        }
        ("items", []) => {
            pay(state, 128 * len)?;
            let pair = |key: Value| Ok(Value::from(vec![key.clone(), value.get_item(&key)?]));
            value.try_iter()?.map(pair).collect::<Result<Value, Error>>()
        }
        ("get" | "keys" | "values" | "items", _) => {
            Err(invalid(format!("{name}() of a mapping got {} arguments", args.len())))
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

/// Arguments of a string method: by place, with at most one by name.
struct Args<'a> {
    method: &'a str,
    plain: &'a [Value],
    named: Option<Kwargs>,
}

impl<'a> Args<'a> {
    fn new(method: &'a str, args: &'a [Value]) -> Result<Self, Error> {
        let (plain, named) = match args.split_last() {
            Some((last, rest)) if last.is_kwargs() => (rest, Some(Kwargs::try_from(last.clone())?)),
            _ => (args, None),
        };
        Ok(Self { method, plain, named })
    }

    fn at(&self, index: usize, name: &str) -> Result<Option<Value>, Error> {
        if let Some(value) = self.plain.get(index) {
            return Ok(Some(value.clone()).filter(|value| !value.is_none()));
        }
        match &self.named {
            Some(named) if named.has(name) => named.get::<Value>(name).map(|v| Some(v).filter(|v| !v.is_none())),
            _ => Ok(None),
        }
    }

    fn string(&self, index: usize, name: &str) -> Result<Option<String>, Error> {
        self.at(index, name)?
            .map(|value| {
                let text = value.as_str().map(str::to_owned);
                text.ok_or_else(|| invalid(format!("{}(): {name} must be a string, not {}", self.method, value.kind())))
            })
            .transpose()
    }

    fn needed(&self, index: usize, name: &str) -> Result<String, Error> {
        self.string(index, name)?.ok_or_else(|| invalid(format!("{}() needs the argument {name}", self.method)))
    }

    /// A count, where a negative or absent one means no limit.
    fn limit(&self, index: usize, name: &str) -> Result<usize, Error> {
        let Some(value) = self.at(index, name)? else { return Ok(usize::MAX) };
        let number = value.as_i64().ok_or_else(|| invalid(format!("{}(): {name} must be an integer", self.method)))?;
        Ok(usize::try_from(number).unwrap_or(usize::MAX))
    }
}

fn string_method(state: &State, text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let args = Args::new(name, args)?;
    Ok(match name {
        "strip" | "lstrip" | "rstrip" => {
            let set = args.string(0, "chars")?;
            pay(state, text.len().saturating_mul(set.as_ref().map_or(0, |set| set.len() / 8)))?;
            let drop = |c: char| set.as_ref().map_or_else(|| python_space(c), |set| set.contains(c));
            Value::from(match name {
                "strip" => text.trim_matches(drop),
                "lstrip" => text.trim_start_matches(drop),
                _ => text.trim_end_matches(drop),
            })
        }
        "startswith" | "endswith" => {
            let test = |value: &Value| {
                let part =
                    value.as_str().ok_or_else(|| invalid(format!("{name}() needs strings, not {}", value.kind())))?;
                Ok::<bool, Error>(if name == "startswith" { text.starts_with(part) } else { text.ends_with(part) })
            };
            let part = args.at(0, "prefix")?.ok_or_else(|| Error::from(ErrorKind::MissingArgument))?;
            if part.as_str().is_some() {
                return Ok(Value::from(test(&part)?));
            }
            for one in part.try_iter()? {
                pay(state, text.len())?;
                if test(&one)? {
                    return Ok(Value::from(true));
                }
            }
            Value::from(false)
        }
        "split" | "rsplit" => {
            let limit = args.limit(1, "maxsplit")?.saturating_add(1);
            let parts: Vec<Value> = match (args.string(0, "sep")?, name) {
                (Some(sep), _) if sep.is_empty() => return Err(invalid("split(): the separator is empty")),
                (Some(sep), "split") => collect_paid(state, text.splitn(limit, &*sep))?,
                (Some(sep), _) => collect_paid(state, text.rsplitn(limit, &*sep))?.into_iter().rev().collect(),
                (None, _) if limit == usize::MAX => {
                    collect_paid(state, text.split(python_space).filter(|part| !part.is_empty()))?
                }
                (None, _) => return Err(invalid(format!("{name}() with maxsplit needs a separator"))),
            };
            Value::from(parts)
        }
        "splitlines" => Value::from(collect_paid(state, text.lines())?),
        "upper" => Value::from(text.to_uppercase()),
        "lower" => Value::from(text.to_lowercase()),
        "capitalize" => {
            let mut chars = text.chars();
            let first: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
            Value::from(first + &chars.as_str().to_lowercase())
        }
        "title" => {
            let mut after_letter = false;
            let mut out = String::with_capacity(text.len());
            for c in text.chars() {
                if after_letter {
                    out.extend(c.to_lowercase())
                } else {
                    out.extend(c.to_uppercase())
                }
                after_letter = c.is_alphabetic();
            }
            Value::from(out)
        }
        "replace" => {
            let (old, new, limit) = (args.needed(0, "old")?, args.needed(1, "new")?, args.limit(2, "count")?);
            let hits = text.matches(&*old).count().min(limit);
            pay(state, hits.saturating_mul(new.len()).saturating_add(text.len()))?;
            Value::from(text.replacen(&*old, &new, limit))
        }
        "find" | "rfind" => {
            let part = args.needed(0, "sub")?;
            let at = if name == "find" { text.find(&*part) } else { text.rfind(&*part) };
            let count = at.and_then(|at| text.get(..at)).map(|before| before.chars().count());
            Value::from(count.and_then(|count| i64::try_from(count).ok()).unwrap_or(-1))
        }
        "count" => Value::from(text.matches(&*args.needed(0, "sub")?).count()),
        "removeprefix" => Value::from(text.strip_prefix(&*args.needed(0, "prefix")?).unwrap_or(text)),
        "removesuffix" => Value::from(text.strip_suffix(&*args.needed(0, "suffix")?).unwrap_or(text)),
        "join" => {
            let list = args.at(0, "iterable")?.ok_or_else(|| Error::from(ErrorKind::MissingArgument))?;
            let mut out = String::new();
            for (at, item) in list.try_iter()?.enumerate() {
                let item = item.as_str().map(str::to_owned).ok_or_else(|| invalid("join() needs strings"))?;
                pay(state, item.len().saturating_add(text.len()))?;
                if at > 0 {
                    out.push_str(text);
                }
                out.push_str(&item);
            }
            Value::from(out)
        }
        "isdigit" | "isnumeric" => Value::from(!text.is_empty() && text.chars().all(char::is_numeric)),
        "isalpha" => Value::from(!text.is_empty() && text.chars().all(char::is_alphabetic)),
        "isalnum" => Value::from(!text.is_empty() && text.chars().all(char::is_alphanumeric)),
        "isspace" => Value::from(!text.is_empty() && text.chars().all(python_space)),
        "isupper" => Value::from(text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase)),
        "islower" => Value::from(text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase)),
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    })
}

/// What `str.isspace` takes for a space: Unicode's white space and the four separators U+001C to U+001F.
fn python_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1C}'..='\u{1F}').contains(&c)
}

/// Collects parts of a string, one list slot's fuel each.
fn collect_paid<'t>(state: &State, parts: impl Iterator<Item = &'t str>) -> Result<Vec<Value>, Error> {
    let mut list = Vec::new();
    for part in parts {
        pay(state, 0)?;
        list.push(Value::from(part));
    }
    Ok(list)
}

/// The filter that stands before every assignment to an attribute of a namespace (see `chat_template`). It gives the value
/// back as plain data of bounded depth: a loop could else nest values without end, or tie a namespace into itself, and
/// printing or dropping such a value recurses until the stack is gone.
pub(crate) fn keep(state: &State, value: Value) -> Result<Value, Error> {
    plain(state, value, 0)
}

fn plain(state: &State, value: Value, depth: usize) -> Result<Value, Error> {
    if depth > MAX_KEPT_DEPTH {
        return Err(invalid(format!("a value kept in a namespace is nested over {MAX_KEPT_DEPTH} deep")));
    }
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            let mut items = Vec::new();
            for item in value.try_iter()? {
                pay(state, 0)?;
                items.push(plain(state, item, depth + 1)?);
            }
            Ok(Value::from(items))
        }
        ValueKind::Map => {
            if value.as_object().is_some_and(|object| object.type_name().contains("Namespace")) {
                return Err(invalid("a namespace can't be kept in a namespace"));
            }
            let mut pairs = Vec::new();
            for key in value.try_iter()? {
                pay(state, 0)?;
                let item = plain(state, value.get_item(&key)?, depth + 1)?;
                pairs.push((plain(state, key, depth + 1)?, item));
            }
            Ok(Value::from_pairs(pairs))
        }
        ValueKind::Plain => Err(invalid("only data can be kept in a namespace, not a macro or a function")),
        _ => Ok(value),
    }
}

/// The filter `tojson`, as `json.dumps(value, ensure_ascii=False, indent=indent)` writes.
pub(crate) fn to_json(state: &State, value: Value, named: Kwargs) -> Result<Value, Error> {
    let indent = named.get::<Option<usize>>("indent")?.map(|n| n.min(16));
    let _ = (named.get::<Option<Value>>("ensure_ascii")?, named.get::<Option<Value>>("sort_keys")?);
    named.assert_all_used()?;
    let mut out = String::new();
    write_json(state, &value, indent, 0, &mut out)?;
    Ok(Value::from(out))
}

fn write_json(
    state: &State,
    value: &Value,
    indent: Option<usize>,
    depth: usize,
    out: &mut String,
) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(invalid(format!("tojson: nested over {MAX_DEPTH} deep")));
    }
    pay(state, 64)?;
    let line = |depth: usize, out: &mut String| {
        if let Some(indent) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    };
    let comma = if indent.is_some() { "," } else { ", " };
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number if value.is_integer() => {
            let _ = write!(out, "{value}");
        }
        ValueKind::Number => {
            let number = f64::try_from(value.clone())?;
            let _ = match number {
                n if n.is_nan() => write!(out, "NaN"),
                n if n.is_infinite() => write!(out, "{}Infinity", if n < 0.0 { "-" } else { "" }),
                n => write!(out, "{n:?}"),
            };
        }
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            pay(state, text.len())?;
            write_json_string(text, out);
        }
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            let mut any = false;
            for item in value.try_iter()? {
                out.push_str(if any { comma } else { "" });
                any = true;
                line(depth + 1, out);
                write_json(state, &item, indent, depth + 1, out)?;
            }
            if any {
                line(depth, out);
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            let mut any = false;
            for key in value.try_iter()? {
                out.push_str(if any { comma } else { "" });
                any = true;
                line(depth + 1, out);
                let name = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                pay(state, name.len())?;
                write_json_string(&name, out);
                out.push_str(": ");
                write_json(state, &value.get_item(&key)?, indent, depth + 1, out)?;
            }
            if any {
                line(depth, out);
            }
            out.push('}');
        }
        kind => return Err(invalid(format!("tojson: JSON has no {kind}"))),
    }
    Ok(())
}

fn write_json_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{C}' => out.push_str("\\f"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
