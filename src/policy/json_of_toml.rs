//! JSON that was written as TOML.

use serde_json::Value;

/// A table as the JSON object that a policy gets.
pub(crate) fn object(table: &toml::Table) -> Result<Value, String> {
    let members: Result<_, _> = table
        .iter()
        .map(|(name, value)| Ok::<_, String>((name.clone(), json(value)?)))
        .collect();
    members.map(Value::Object)
}

/// A value, unless JSON has nothing like it.
pub(super) fn json(value: &toml::Value) -> Result<Value, String> {
    match value {
        toml::Value::String(text) => Ok(Value::from(text.as_str())),
        toml::Value::Integer(number) => Ok(Value::from(*number)),
        toml::Value::Boolean(truth) => Ok(Value::from(*truth)),
        toml::Value::Float(number) => serde_json::Number::from_f64(*number)
            .map(Value::Number)
            .ok_or_else(|| format!("JSON has no number {number}")),
        toml::Value::Datetime(time) => Err(format!("JSON has no dates; write \"{time}\" as a text")),
        toml::Value::Array(values) => values
            .iter()
            .map(json)
            .collect::<Result<_, _>>()
            .map(Value::Array),
        toml::Value::Table(table) => object(table),
    }
}
