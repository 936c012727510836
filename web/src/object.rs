//! Plain JavaScript objects, written and read by property.

use crate::errors::{Result, js_error};
use js_sys::{Object, Reflect};
use wasm_bindgen::JsValue;

/// An object with these properties.
pub(crate) fn object(properties: &[(&str, JsValue)]) -> Result<JsValue> {
    let object = Object::new();
    for (name, value) in properties {
        Reflect::set(&object, &JsValue::from_str(name), value)?;
    }
    Ok(object.into())
}

/// Counts as JavaScript numbers: exact up to 2^53.
pub(crate) fn number(value: u64) -> JsValue {
    JsValue::from_f64(value as f64)
}

/// A property of an object; `None` where the object or the property is missing.
pub(crate) fn property(object: &JsValue, name: &str) -> Result<Option<JsValue>> {
    if object.is_undefined() || object.is_null() {
        return Ok(None);
    }
    if !object.is_object() {
        return Err(js_error(format!("an object with options is expected where `{name}` is looked for")));
    }
    let value = Reflect::get(object, &JsValue::from_str(name))?;
    Ok((!value.is_undefined() && !value.is_null()).then_some(value))
}

/// A number among the properties.
pub(crate) fn number_property(object: &JsValue, name: &str) -> Result<Option<f64>> {
    let Some(value) = property(object, name)? else { return Ok(None) };
    match value.as_f64() {
        Some(number) if number.is_finite() => Ok(Some(number)),
        _ => Err(js_error(format!("{name} must be a finite number"))),
    }
}

/// A whole number of at least 0 among the properties.
pub(crate) fn count_property(object: &JsValue, name: &str) -> Result<Option<u64>> {
    match number_property(object, name)? {
        Some(number) if (0.0..=9_007_199_254_740_991.0).contains(&number) && number.fract() == 0.0 => {
            Ok(Some(number as u64))
        }
        Some(number) => Err(js_error(format!("{name} must be a whole number of at least 0, not {number}"))),
        None => Ok(None),
    }
}

/// A string among the properties.
pub(crate) fn string_property(object: &JsValue, name: &str) -> Result<Option<String>> {
    let Some(value) = property(object, name)? else { return Ok(None) };
    value.as_string().map(Some).ok_or_else(|| js_error(format!("{name} must be a string")))
}
