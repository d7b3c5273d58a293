//! Environment variables of a container.

use serde_json::{Value, json};

use super::list::name;
use crate::path::Lookup as _;

/// The literal value of a variable.
pub(crate) fn value<'a>(container: &'a Value, variable: &str) -> Option<&'a str> {
    let list = container.lookup("env")?.as_array()?;
    list.iter().find(|item| name(item) == variable)?.lookup("value")?.as_str()
}

/// Removes a variable.
pub(crate) fn remove(container: &mut Value, variable: &str) -> Option<Value> {
    let list = container.get_mut("env")?.as_array_mut()?;
    let at = list.iter().position(|item| name(item) == variable)?;
    Some(list.remove(at))
}

/// Appends a variable.
pub(crate) fn push(container: &mut Value, variable: &str, value: &str) {
    let Some(container) = container.as_object_mut() else {
        return;
    };
    let list = container.entry("env").or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    if let Some(items) = list.as_array_mut() {
        items.push(json!({ "name": variable, "value": value }));
    }
}

/// Sets variables at the end of the list, in the order of their names: one that is there already moves.
pub(crate) fn append_sorted(container: &mut Value, mut variables: Vec<(String, String)>) {
    variables.sort();
    for (variable, _) in &variables {
        remove(container, variable);
    }
    for (variable, value) in &variables {
        push(container, variable, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_variables_are_last_and_sorted() {
        let mut container = json!({"env": [{"name": "B", "value": "old"}, {"name": "X", "value": "x"}]});
        let variables = vec![("C".to_owned(), "3".to_owned()), ("B".to_owned(), "2".to_owned())];
        append_sorted(&mut container, variables.clone());
        let once = container.clone();
        assert_eq!(
            once,
            json!({"env": [
                {"name": "X", "value": "x"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}
            ]})
        );
        append_sorted(&mut container, variables);
        assert_eq!(container, once);
    }
}
