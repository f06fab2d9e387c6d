//! Lists as CSV (RFC 4180) for spreadsheets, which must not execute what strangers wrote.

use serde_json::Value;

/// Characters that begin a formula in a spreadsheet, also after invisible ones, and in full width.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];

/// One line of an object's fields, in the order of the columns, which are separated by commas.
#[must_use]
pub fn line(object: &Value, columns: &str) -> String {
    let cells: Vec<_> = columns.split(',').map(|column| cell(&object[column])).collect();
    cells.join(",") + "\r\n"
}

/// The names of the columns.
#[must_use]
pub fn head(columns: &str) -> String {
    format!("{columns}\r\n")
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => quoted(text),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        // Quoted, as JSON has commas.
        Value::Array(_) | Value::Object(_) => quoted(&value.to_string()),
    }
}

/// White space, control and format characters.
fn is_unseen(c: char) -> bool {
    let is_format = matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    is_format || c.is_whitespace() || c.is_control()
}

/// Quotes always: where `;` separates cells, an unquoted text could split into several.
fn quoted(text: &str) -> String {
    let mut cell = String::with_capacity(text.len() + 2);
    cell.push('"');
    let is_formula = text.trim_start_matches(is_unseen).starts_with(FORMULA);
    if is_formula || text.starts_with(['\t', '\r', '\n']) {
        cell.push('\'');
    }
    for c in text.chars() {
        match c {
            '"' => cell.push_str("\"\""),
            '\t' | '\n' | '\r' => cell.push(c),
            // Readers end a text at U+0000, or refuse the file.
            c if c.is_control() => cell.push(char::REPLACEMENT_CHARACTER),
            c => cell.push(c),
        }
    }
    cell.push('"');
    cell
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_text_leaves_its_cell_or_becomes_a_formula() {
        for (text, expected) in [
            ("A-1", r#""A-1""#),
            ("", r#""""#),
            ("a,b;c", r#""a,b;c""#),
            ("say \"x\"", r#""say ""x""""#),
            ("a\r\nb", "\"a\r\nb\""),
            ("=1+1", "\"'=1+1\""),
            ("+1", "\"'+1\""),
            ("-1", "\"'-1\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("\t=1", "\"'\t=1\""),
            ("\r=1", "\"'\r=1\""),
            ("\n=1", "\"'\n=1\""),
            (" =1", "\"' =1\""),
            ("\u{feff}\u{200b}\u{a0}=1", "\"'\u{feff}\u{200b}\u{a0}=1\""),
            ("\u{ff1d}1", "\"'\u{ff1d}1\""),
            ("\u{ff20}SUM(A1)", "\"'\u{ff20}SUM(A1)\""),
            ("a=1", r#""a=1""#),
            (" a=1", r#"" a=1""#),
            ("a\0b\u{85}", "\"a\u{fffd}b\u{fffd}\""),
            ("\"=1", "\"\"\"=1\""),
        ] {
            assert_eq!(cell(&json!(text)), expected, "{text:?}");
        }
    }

    #[test]
    fn a_list_is_one_cell() {
        assert_eq!(cell(&json!(["eth", "op"])), r#""[""eth"",""op""]""#);
        assert_eq!(cell(&json!([])), r#""[]""#);
    }

    #[test]
    fn a_line_has_the_columns_in_their_order() {
        let object = json!({ "b": 7, "a": "x", "c": null, "d": true, "e": "not asked for" });
        let columns = "a,b,c,d";
        assert_eq!(head(columns), "a,b,c,d\r\n");
        assert_eq!(line(&object, columns), "\"x\",7,,true\r\n");
    }
}
