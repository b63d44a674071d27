//! What a row captures, and where it is put in: `${Q1}`, `${Q${i}}`, `${S1:flip-bit}`, `${A*1048576}`.

use std::collections::HashMap;

use serde_json::Value;

/// Captured texts by their names.
#[derive(Debug, Default)]
pub(super) struct Captured {
    texts: HashMap<String, String>,
    /// Which bit `flip-bit` changes.
    pub(super) bit: usize,
}

impl Captured {
    pub(super) fn set(&mut self, name: &str, text: &str) {
        self.texts.insert(name.to_owned(), text.to_owned());
    }

    pub(super) fn get(&self, name: &str) -> &str {
        self.texts
            .get(name)
            .unwrap_or_else(|| panic!("`{name}` is not captured"))
    }

    /// Every captured text whose name starts so.
    pub(super) fn all(&self, prefix: &str) -> Vec<&str> {
        self.texts
            .iter()
            .filter(|(name, _)| name.starts_with(prefix))
            .map(|(_, text)| text.as_str())
            .collect()
    }

    /// The text with everything put in, the innermost first.
    pub(super) fn fill(&self, text: &str) -> String {
        let mut text = text.to_owned();
        while let Some(start) = text.rfind("${") {
            let end = start + text[start..].find('}').expect("a capture ends");
            let filled = self.one(&text[start + 2..end]);
            text.replace_range(start..=end, &filled);
        }
        text
    }

    /// As [`Self::fill`], in every text inside.
    pub(super) fn fill_all(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(values) => values.iter().map(|value| self.fill_all(value)).collect(),
            Value::Object(members) => members
                .iter()
                .map(|(name, value)| (name.clone(), self.fill_all(value)))
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn one(&self, inside: &str) -> String {
        if let Some((letter, times)) = inside.split_once('*') {
            return letter.repeat(times.parse().expect("a number of times"));
        }
        match inside.split_once(':') {
            None => self.get(inside).to_owned(),
            Some((name, "upper")) => self.get(name).to_uppercase(),
            Some((name, "flip-bit")) => flipped(self.get(name), self.bit),
            Some((_, change)) => panic!("`{change}` is no known change"),
        }
    }
}

/// The bits of a text that `flip-bit` goes through: seven of each byte of ASCII.
pub(super) fn bits(text: &str) -> usize {
    text.len() * 7
}

/// The text with one bit changed, as it stands inside a JSON string.
fn flipped(text: &str, bit: usize) -> String {
    let mut bytes = text.as_bytes().to_vec();
    bytes[bit / 7] ^= 1 << (bit % 7);
    let changed = String::from_utf8(bytes).expect("ASCII stays ASCII");
    let quoted = Value::String(changed).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}
