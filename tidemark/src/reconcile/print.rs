//! The report as text for people, as JSON and as CSV.

use api::csv;
use reconcile::{Difference, Line, Sum, Total, rfc3339};
use schemas::{Amount, Blockchain, Stablecoin};
use serde_json::{Value, json};

use super::{Chain, Report};

/// The text of an amount or a time that is not known.
const NOT_KNOWN: &str = "not known";
const COLUMNS: &str = "section,join,from,to,blockchain,coin,item,count,amount,text,command";

fn amount(value: Option<Amount>) -> String {
    value.map_or_else(|| NOT_KNOWN.to_owned(), |value| value.to_string())
}

fn chain_word(chain: Option<Blockchain>) -> &'static str {
    chain.map_or("", Blockchain::as_str)
}

fn coin_word(coin: Option<Stablecoin>) -> &'static str {
    coin.map_or("", Stablecoin::as_str)
}

impl Chain {
    fn settled(&self) -> String {
        self.settled.map_or_else(|| NOT_KNOWN.to_owned(), rfc3339)
    }

    fn text(&self) -> Vec<String> {
        let chain = self.blockchain;
        let mut line = format!("{chain}: settled to {}", self.settled());
        if self.younger > 0 {
            line += &format!("; {} younger transfers are not judged", self.younger);
        }
        let mut lines = vec![line];
        if let Some(survey) = &self.survey
            && let [first, .., end] = survey.blocks.as_slice()
        {
            let (endpoints, last) = (survey.endpoints, end - 1);
            lines.push(format!("  blocks {first} to {last} asked of {endpoints} endpoints"));
        }
        lines
    }
}

/// Returns the report as text for a person.
pub(super) fn text(report: &Report) -> String {
    let mut lines =
        vec![format!("{} to {}", rfc3339(report.period.from), rfc3339(report.period.to))];
    lines.extend(report.chains.iter().flat_map(Chain::text));
    lines.push(String::new());
    lines.extend(report.joined.totals.iter().map(total_line));
    if !report.statement.is_empty() {
        lines.push(String::new());
        lines.extend(report.statement.iter().map(statement_line));
    }
    if !report.differences().is_empty() {
        lines.push(String::new());
        lines.extend(difference_lines(report.differences()));
    }
    lines.push(String::new());
    lines.extend(report.unknown.iter().map(|text| format!("NOT KNOWN: {text}")));
    lines.push(match report.differences().len() {
        0 if report.unknown.is_empty() => "all of it agrees".to_owned(),
        0 => "what could be compared agrees".to_owned(),
        1 => "1 difference".to_owned(),
        count => format!("{count} differences"),
    });
    lines.join("\n") + "\n"
}

fn total_line(total: &Total) -> String {
    let Total { join, blockchain, coin, item, sum } = total;
    let sum_text = if coin.is_some() { amount(sum.value) } else { String::new() };
    let line = format!(
        "{:<20} {:<8} {:<5} {:<10} {:>8} {:>24}",
        join.as_str(),
        chain_word(*blockchain),
        coin_word(*coin),
        item,
        sum.count,
        sum_text
    );
    line.trim_end().to_owned()
}

fn statement_line(line: &Line) -> String {
    let Line { blockchain, coin, period, opening, matched, unknown, other, sent, closing } = line;
    let part = |sum: &Sum| format!("{} ({})", amount(sum.value), sum.count);
    let other = if other.count > 0 { format!(", other {}", part(other)) } else { String::new() };
    format!(
        "{} {blockchain} {coin}: opening {}, received matched {}, unknown {}{other}, sent {}, closing {}",
        rfc3339(period.from),
        amount(*opening),
        part(matched),
        part(unknown),
        part(sent),
        amount(*closing)
    )
}

/// A line for each difference. A cure that several in a row have in common is on the first of them.
fn difference_lines(differences: &[Difference]) -> Vec<String> {
    let before = std::iter::once(None).chain(differences.iter().map(Some));
    let line = |(difference, before): (&Difference, Option<&Difference>)| {
        let Difference { join, kind, what, cure, .. } = difference;
        let is_said = before.is_some_and(|before| (&before.kind, &before.cure) == (kind, cure));
        let cure = if is_said { "as above" } else { cure.as_str() };
        // The shop's own ids may have ends of lines in them.
        let line = format!("DIFFERS {}: {what} -> {cure}", join.as_str());
        line.replace('\n', "\\n")
    };
    differences.iter().zip(before).map(line).collect()
}

fn sum_json(sum: Sum) -> Value {
    json!({ "count": sum.count, "amount": sum.value.map(|value| value.to_string()) })
}

/// Returns the report as JSON for programs.
pub(super) fn json(report: &Report) -> String {
    let shown = |value: Option<Amount>| value.map(|value| value.to_string());
    let chain = |chain: &Chain| {
        let survey = chain.survey.as_ref();
        json!({
            "blockchain": chain.blockchain.as_str(),
            "settled_to": chain.settled.map(|settled| settled.0),
            "younger": chain.younger,
            "endpoints": survey.map(|survey| survey.endpoints),
        })
    };
    let total = |total: &Total| {
        let mut value = sum_json(total.sum);
        value["join"] = total.join.as_str().into();
        value["blockchain"] = total.blockchain.map(Blockchain::as_str).into();
        value["coin"] = total.coin.map(Stablecoin::as_str).into();
        value["item"] = total.item.into();
        value
    };
    let difference = |one: &Difference| {
        json!({
            "join": one.join.as_str(),
            "kind": one.kind.as_str(),
            "blockchain": one.blockchain.map(Blockchain::as_str),
            "what": one.what,
            "command": one.cure,
        })
    };
    let line = |line: &Line| {
        json!({
            "blockchain": line.blockchain.as_str(),
            "coin": line.coin.as_str(),
            "from": line.period.from.0,
            "to": line.period.to.0,
            "opening": shown(line.opening),
            "matched": sum_json(line.matched),
            "unknown": sum_json(line.unknown),
            "other": sum_json(line.other),
            "sent": sum_json(line.sent),
            "closing": shown(line.closing),
        })
    };
    let document = json!({
        "from": report.period.from.0,
        "to": report.period.to.0,
        "agrees": report.code() == super::AGREES,
        "chains": report.chains.iter().map(chain).collect::<Vec<_>>(),
        "totals": report.joined.totals.iter().map(total).collect::<Vec<_>>(),
        "statement": report.statement.iter().map(line).collect::<Vec<_>>(),
        "differences": report.differences().iter().map(difference).collect::<Vec<_>>(),
        "not_known": report.unknown,
    });
    format!("{document}\n")
}

/// Returns the report as CSV for spreadsheets.
pub(super) fn csv(report: &Report) -> String {
    let mut text = csv::head(COLUMNS);
    let mut add = |object: Value| text += &csv::line(&object, COLUMNS);
    for total in &report.joined.totals {
        add(json!({
            "section": "total",
            "join": total.join.as_str(),
            "blockchain": chain_word(total.blockchain),
            "coin": coin_word(total.coin),
            "item": total.item,
            "count": total.sum.count,
            "amount": total.coin.map(|_| amount(total.sum.value)),
        }));
    }
    for line in &report.statement {
        for (item, count, value) in [
            ("opening", None, line.opening),
            ("matched", Some(line.matched.count), line.matched.value),
            ("unknown", Some(line.unknown.count), line.unknown.value),
            ("other", Some(line.other.count), line.other.value),
            ("sent", Some(line.sent.count), line.sent.value),
            ("closing", None, line.closing),
        ] {
            add(json!({
                "section": "statement",
                "from": rfc3339(line.period.from),
                "to": rfc3339(line.period.to),
                "blockchain": line.blockchain.as_str(),
                "coin": line.coin.as_str(),
                "item": item,
                "count": count,
                "amount": amount(value),
            }));
        }
    }
    for one in report.differences() {
        add(json!({
            "section": "difference",
            "join": one.join.as_str(),
            "blockchain": chain_word(one.blockchain),
            "item": one.kind.as_str(),
            "text": one.what,
            "command": one.cure,
        }));
    }
    for unknown in &report.unknown {
        add(json!({ "section": "not known", "text": unknown }));
    }
    // The output escapes control characters, so it would print a carriage return as text.
    text.replace("\r\n", "\n")
}

#[cfg(test)]
mod tests {
    use reconcile::{Join, Kind};

    use super::*;

    #[test]
    fn a_common_cure_is_printed_once() {
        let difference = |kind, what: &str, cure: &str| Difference {
            join: Join::Verdicts,
            kind,
            blockchain: None,
            what: what.to_owned(),
            cure: cure.to_owned(),
        };
        let (expired, none) = (Kind::NoLongerInLog, Kind::NoVerdict);
        let differences = [
            difference(expired, "a", "rewind"),
            difference(expired, "b", "rewind"),
            difference(none, "c", "rewind"),
            difference(none, "d\ne", "list"),
        ];
        let cures = difference_lines(&differences);
        let expected = ["a -> rewind", "b -> as above", "c -> rewind", "d\\ne -> list"];
        assert_eq!(cures, expected.map(|line| format!("DIFFERS raw = verdicts: {line}")));
    }
}
