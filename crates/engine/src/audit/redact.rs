//! Secrets taken out of what is recorded, by the names under which they were declared. Pure.

use serde_json::{Map, Value};

use super::record::Entry;

/// Values shorter than this are no secrets: taking out every `a` would say more than it hides.
const SHORTEST: usize = 6;

/// What must not stand in the trail: values, and the names that stand there instead.
#[derive(Debug, Clone, Default)]
pub struct Secrets(Vec<(String, String)>);

impl Secrets {
    /// From names and values. Values of fewer than 6 characters are left alone.
    pub fn new(named: impl IntoIterator<Item = (String, String)>) -> Secrets {
        let mut list: Vec<_> = named.into_iter().filter(|(_, value)| value.len() >= SHORTEST).collect();
        // A secret that holds another one is taken out first, or its rest would stay.
        list.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        Secrets(list)
    }

    /// Takes them out of every text of an entry, keys included.
    pub fn take_out(&self, entry: &mut Entry) {
        if self.0.is_empty() {
            return;
        }
        for text in [&mut entry.run, &mut entry.skill].into_iter().flatten() {
            *text = self.text(text);
        }
        entry.data = self.object(std::mem::take(&mut entry.data));
    }

    fn object(&self, map: Map<String, Value>) -> Map<String, Value> {
        map.into_iter().map(|(key, value)| (self.text(&key), self.value(value))).collect()
    }

    fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(list) => Value::Array(list.into_iter().map(|v| self.value(v)).collect()),
            Value::Object(map) => Value::Object(self.object(map)),
            other => other,
        }
    }

    fn text(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for (name, value) in &self.0 {
            if out.contains(value.as_str()) {
                out = out.replace(value.as_str(), &format!("[secret {name}]"));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declared_value_stands_nowhere_and_everything_else_stays() {
        let named = [("SHORT", "abc"), ("KEY", "hunter2-hunter2"), ("PART", "hunter2")];
        let secrets = Secrets::new(named.map(|(n, v)| (n.into(), v.into())));
        let mut entry = Entry::new("api_call")
            .skill("abc hunter2")
            .with("path", "/x?k=hunter2-hunter2&abc")
            .with("list", vec!["hunter2", "plain"]);
        entry.data.insert("hunter2".into(), serde_json::json!({"deep": ["hunter2-hunter2", 5]}));
        secrets.take_out(&mut entry);
        let text = serde_json::to_string(&entry.data).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        assert_eq!(entry.skill.as_deref(), Some("abc [secret PART]"));
        assert_eq!(entry.data["path"], "/x?k=[secret KEY]&abc");
        assert_eq!(entry.data["list"][1], "plain");
    }
}
