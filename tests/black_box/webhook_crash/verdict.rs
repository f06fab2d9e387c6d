//! Invariants of webhooks under kills, judged by the receivers' own list beside the topics.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use schemas::UnixMicros;
use serde_json::Value;
use testkit::harness::{Call, Reply};

/// The setting of the processes: the fifth attempt follows the first after 15 s.
pub(super) const ATTEMPTS_MAX: i64 = 5;
/// The delay after the first attempt (spec 6.3.3).
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// Minimum number of checked delays, far below that of any run.
const TIMES_MIN: usize = 20;

/// The topics and the receivers' calls at the end of a run, and its kills.
pub(super) struct Evidence {
    /// Records of `webhooks.dispatch`.
    pub(super) dispatched: Vec<Value>,
    pub(super) attempts: Vec<Value>,
    pub(super) dead: Vec<Value>,
    pub(super) calls: Vec<Call>,
    /// Times of the kills: on embedded back ends, after the receivers had seen everything that was sent before.
    pub(super) kills: Vec<Instant>,
}

/// Evidence of one event.
#[derive(Default)]
struct Event<'a> {
    attempts: Vec<&'a Value>,
    calls: Vec<&'a Call>,
    is_dead: bool,
}

pub(super) fn text<'a>(record: &'a Value, field: &str) -> &'a str {
    record[field].as_str().unwrap_or_else(|| panic!("no {field} in {record}"))
}

/// `true` if an attempt counts (spec 2.3): a request was made, or tried.
pub(super) fn is_request(attempt: &Value) -> bool {
    ["delivered", "status", "timeout", "connect", "protocol"].contains(&text(attempt, "outcome"))
}

/// The order and the version in the name of an event.
fn parts(event_id: &str) -> (&str, u64) {
    let (order, version) = event_id.split_once('.').expect("an order's event");
    (order, version.parse().expect("a version"))
}

impl Event<'_> {
    fn has(&self, outcome: &str) -> bool {
        self.attempts.iter().any(|attempt| attempt["outcome"] == outcome)
    }

    fn is_over(&self) -> bool {
        self.is_dead || self.has("delivered") || self.has("superseded")
    }

    /// The numbers of the attempts that are recorded as requests.
    fn requests(&self) -> Vec<i64> {
        let requests = self.attempts.iter().filter(|attempt| is_request(attempt));
        requests.map(|attempt| attempt["attempt"].as_i64().expect("a number")).collect()
    }

    fn first_call(&self, attempt: i32) -> Option<&Call> {
        self.calls.iter().copied().find(|call| call.attempt == attempt)
    }
}

fn events(evidence: &Evidence) -> BTreeMap<&str, Event<'_>> {
    let mut events: BTreeMap<&str, Event<'_>> = BTreeMap::new();
    for delivery in &evidence.dispatched {
        events.entry(text(delivery, "event_id")).or_default();
    }
    for attempt in &evidence.attempts {
        events.entry(text(attempt, "event_id")).or_default().attempts.push(attempt);
    }
    for delivery in &evidence.dead {
        events.entry(text(delivery, "event_id")).or_default().is_dead = true;
    }
    for call in &evidence.calls {
        events.entry(&call.event_id).or_default().calls.push(call);
    }
    events
}

/// Number of events that are neither delivered nor superseded nor dead.
pub(super) fn unended(evidence: &Evidence) -> usize {
    events(evidence).values().filter(|event| !event.is_over()).count()
}

/// Describes each violation of the invariants.
pub(super) fn judge(evidence: &Evidence) -> Vec<String> {
    let events = events(evidence);
    let dispatched: BTreeSet<_> =
        evidence.dispatched.iter().map(|delivery| text(delivery, "event_id")).collect();
    let (mut flaws, mut times) = (Vec::new(), 0);
    if dispatched.len() != evidence.dispatched.len() {
        flaws.push("an event was dispatched twice".to_owned());
    }
    for (id, event) in &events {
        let mut flaw = |what: String| flaws.push(format!("{id}: {what}"));
        if !dispatched.contains(id) {
            flaw("it was never dispatched".to_owned());
        }
        check_end(id, event, &events, &mut flaw);
        check_numbers(event, &mut flaw);
        times += check_times(event, &mut flaw);
        check_records(event, &evidence.kills, &mut flaw);
        check_repeats(event, &mut flaw);
    }
    if times < TIMES_MIN {
        flaws.push(format!("only {times} times between two attempts could be checked"));
    }
    check_order(&evidence.calls, &mut flaws);
    flaws
}

/// Each event is delivered, or given up after all attempts, or overtaken by a newer one of its order.
fn check_end(
    id: &str,
    event: &Event<'_>,
    events: &BTreeMap<&str, Event<'_>>,
    flaw: &mut impl FnMut(String),
) {
    let ends = [event.has("delivered"), event.has("superseded"), event.is_dead];
    if ends.iter().filter(|end| **end).count() != 1 {
        flaw(format!("delivered, superseded, dead: {ends:?}"));
    }
    let (order, version) = parts(id);
    let is_newer = |other: &&str| parts(other).0 == order && parts(other).1 > version;
    if event.has("superseded") && !events.keys().any(is_newer) {
        flaw("it is superseded by nothing".to_owned());
    }
    let is_last = event.attempts.iter().any(|attempt| attempt["attempt"] == ATTEMPTS_MAX);
    if event.is_dead && !is_last {
        flaw("it was given up before its last attempt".to_owned());
    }
}

/// Attempts have the numbers from 1 to [`ATTEMPTS_MAX`], each recorded once. None is made before the one below it is
/// recorded.
fn check_numbers(event: &Event<'_>, flaw: &mut impl FnMut(String)) {
    let numbers: Vec<_> =
        event.attempts.iter().filter_map(|attempt| attempt["attempt"].as_i64()).collect();
    let mut requests = event.requests();
    let count = requests.len();
    requests.sort_unstable();
    requests.dedup();
    if requests.len() != count {
        flaw(format!("an attempt is recorded twice: {numbers:?}"));
    }
    for call in &event.calls {
        let number = i64::from(call.attempt);
        if !(1..=ATTEMPTS_MAX).contains(&number) {
            flaw(format!("attempt {number} was made"));
        }
        if let Some(missing) = (1..number).find(|below| !numbers.contains(below)) {
            flaw(format!("attempt {number} was made, and {missing} is not recorded"));
        }
    }
}

/// Attempt n + 1 comes 2^(n-1) s after attempt n at the soonest (spec 6.3.3). Returns how many were checked.
fn check_times(event: &Event<'_>, flaw: &mut impl FnMut(String)) -> usize {
    let mut checked = 0;
    for attempt in 1..i32::try_from(ATTEMPTS_MAX).unwrap() {
        let (Some(failed), Some(next)) = (event.first_call(attempt), event.first_call(attempt + 1))
        else {
            continue;
        };
        // The delay after a timeout is not checked: the request may have reached the receiver at any time.
        let (waited, delay) = (next.at - failed.at, FIRST_DELAY * (1 << (attempt - 1)));
        let is_late = event.attempts.iter().any(|recorded| {
            recorded["attempt"] == attempt && text(recorded, "outcome") == "timeout"
        });
        if is_late || failed.reply == Reply::Silence {
            continue;
        }
        checked += 1;
        if waited < delay {
            flaw(format!("attempt {} came {waited:?} after the one before", attempt + 1));
        }
    }
    checked
}

/// The receiver saw each recorded answer, and at most one call for each kill is without a record.
fn check_records(event: &Event<'_>, kills: &[Instant], flaw: &mut impl FnMut(String)) {
    for attempt in &event.attempts {
        let seen = match text(attempt, "outcome") {
            "delivered" => Reply::Status(200),
            "status" => Reply::Status(attempt["http_status"].as_u64().unwrap().try_into().unwrap()),
            _ => continue,
        };
        let is_it = |call: &&Call| attempt["attempt"] == call.attempt && call.reply == seen;
        if !event.calls.iter().any(is_it) {
            flaw(format!("the receiver knows nothing of {attempt}"));
        }
    }
    // The next kill may lose the record of a call. The last call is not always repeated: a newer event may have
    // superseded it.
    let next_kill = |call: &&Call| kills.iter().find(|kill| **kill > call.at);
    let lost: BTreeSet<_> = event.calls.iter().copied().filter_map(|c| next_kill(&c)).collect();
    if event.calls.len() > event.requests().len() + lost.len() {
        let (requests, kills) = (event.requests(), lost.len());
        let calls: Vec<_> = event.calls.iter().map(|c| (c.attempt, c.reply)).collect();
        flaw(format!("{requests:?} are recorded, with {kills} kills, and these calls: {calls:?}"));
    }
}

/// Finds a second call of an attempt since the recorded one began: only earlier calls may lack a record.
fn check_repeats(event: &Event<'_>, flaw: &mut impl FnMut(String)) {
    for attempt in event.attempts.iter().filter(|attempt| is_request(attempt)) {
        let begun: UnixMicros = text(attempt, "attempted_at").parse().expect("a time");
        let is_since = |call: &&&Call| attempt["attempt"] == call.attempt && call.time >= begun;
        let since: Vec<_> = event.calls.iter().filter(is_since).map(|call| call.time).collect();
        if since.len() > 1 {
            flaw(format!("{attempt} is one call, and since then there were {since:?}"));
        }
    }
}

/// No event is sent after a newer one of its order.
fn check_order(calls: &[Call], flaws: &mut Vec<String>) {
    let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
    for call in calls {
        let (order, version) = parts(&call.event_id);
        let newest = newest.entry(order).or_insert(version);
        if version < *newest {
            let attempt = call.attempt;
            flaws.push(format!("{order}: attempt {attempt} of {version} came after {newest}"));
        }
        *newest = version.max(*newest);
    }
}

/// Counts of the evidence, as text.
pub(super) fn summary(evidence: &Evidence) -> String {
    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    for attempt in &evidence.attempts {
        *outcomes.entry(text(attempt, "outcome")).or_default() += 1;
    }
    let (events, dead) = (evidence.dispatched.len(), evidence.dead.len());
    let requests = evidence.attempts.iter().filter(|attempt| is_request(attempt)).count();
    let repeated = evidence.calls.len().saturating_sub(requests);
    format!(
        "{events} events, {dead} dead, attempts {outcomes:?}, {repeated} calls without a record"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Flaws of an event with an attempt delivered at second 10, calls at these seconds, and a kill after each.
    fn flaws(seconds: &[i64]) -> Vec<String> {
        let start = Instant::now();
        let at = |second: i64| start + Duration::from_secs(second.unsigned_abs());
        let call = |second: &i64| Call {
            event_id: "a.1".into(),
            attempt: 1,
            at: at(*second),
            time: UnixMicros(*second * 1_000_000),
            reply: Reply::Status(200),
        };
        let calls: Vec<_> = seconds.iter().map(call).collect();
        let kills: Vec<_> = seconds.iter().map(|second| at(second + 1)).collect();
        let attempted_at = UnixMicros(10_000_000).to_rfc3339();
        let attempt = json!({ "attempt": 1, "outcome": "delivered", "attempted_at": attempted_at });
        let (attempts, calls) = (vec![&attempt], calls.iter().collect());
        let event = Event { attempts, calls, is_dead: false };
        let mut flaws = Vec::new();
        check_records(&event, &kills, &mut |flaw| flaws.push(flaw));
        assert_eq!(flaws, [""; 0], "one for each kill is allowed");
        check_repeats(&event, &mut |flaw| flaws.push(flaw));
        flaws
    }

    #[test]
    fn what_is_sent_again_at_every_start_is_a_flaw() {
        assert_eq!(flaws(&[10]), [""; 0]);
        assert_eq!(flaws(&[4, 7, 10]), [""; 0], "kills made the first two unknown");
        for seconds in [&[10, 12][..], &[10, 12, 14, 16], &[4, 10, 12]] {
            assert_eq!(flaws(seconds).len(), 1, "{seconds:?}");
        }
    }
}
