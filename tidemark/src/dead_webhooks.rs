//! `tidemark webhook dead`: webhooks whose attempts are exhausted, and their redrive.
//!
//! The command asks the api to resend by order or transfer, instead of replaying the dead record, which could deliver
//! an old status after a newer one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use api::redrive;
use api::survey::Subject;
use clap::Args;
use log::{Record, TopicPartition};
use reqwest::{Method, StatusCode};
use schemas::record::Delivery;
use schemas::{AttemptOutcome, DeliveryKind, OrderId, Topic, UnixMicros};
use serde_json::Value;
use tokio::time::MissedTickBehavior;
use url::Url;

use crate::health::admin_api::Api;
use crate::output::{print, say};
use crate::settings::Settings;
use crate::setup::Outcome;
use crate::tail::{Source, read_readable, time};

/// Selection of webhooks.
#[derive(Debug, Default, Args)]
pub(crate) struct Filter {
    /// For receivers at this host.
    #[arg(long)]
    host: Option<String>,
    /// Given up at this time or later: such as 2026-09-21T14:00:00Z, or Unix seconds.
    #[arg(long, value_parser = time)]
    since: Option<UnixMicros>,
    /// Given up before this time.
    #[arg(long, value_parser = time)]
    until: Option<UnixMicros>,
    /// Outcome of the last attempt, such as timeout.
    #[arg(long)]
    outcome: Option<AttemptOutcome>,
    /// `order_status_changed` or `unknown_transfer`.
    #[arg(long)]
    kind: Option<DeliveryKind>,
    /// Of this order.
    #[arg(long)]
    order: Option<OrderId>,
}

/// Options for sending them again.
#[derive(Debug, Args)]
pub(crate) struct Pace {
    /// Only print what would be sent.
    #[arg(long)]
    dry_run: bool,
    /// Maximum number sent per second.
    #[arg(long, default_value = "20", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// API URL, e.g. <http://10.0.0.7:8080>; default: `server.admin_listen` or `server.listen`.
    #[arg(long)]
    api: Option<Url>,
}

impl From<&Filter> for redrive::Filter {
    fn from(given: &Filter) -> Self {
        let Filter { host, since, until, outcome, kind, order } = given;
        let (since, until, outcome) = (*since, *until, *outcome);
        Self { host: host.clone(), since, until, outcome, kind: *kind, order: *order }
    }
}

/// The webhooks that fit, and positions and errors of records that cannot be read.
type Read = (Vec<(Arc<Record>, Delivery)>, Vec<String>);

fn read(settings: &Settings, filter: &Filter) -> anyhow::Result<Read> {
    let (source, topic) = (Source::open(settings)?, Topic::WebhooksDead);
    let filter = redrive::Filter::from(filter);
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    for partition in topic.all_partitions(&settings.log.layout) {
        let of = TopicPartition { topic, partition };
        let page = |of, from, max| source.read(of, from, max);
        let take = |record: Arc<Record>, delivery| {
            if filter.fits(record.appended_at, &delivery) {
                found.push((record, delivery));
            }
        };
        read_readable(of, source.bounds(of)?.start, page, take, &mut unreadable)?;
    }
    found.sort_by_key(|(record, _)| record.appended_at);
    Ok((found, unreadable))
}

/// Lists webhooks that fit the filter, one a line, the oldest first. Also while processes run. Fails if a record cannot
/// be read.
pub(crate) fn list(settings: &Settings, filter: &Filter) -> anyhow::Result<Outcome> {
    let (found, unreadable) = read(settings, filter)?;
    let line = |(record, delivery): &(Arc<Record>, Delivery)| {
        format!(
            "{} {} {} for {} after attempt {}: {} {}",
            record.appended_at.to_rfc3339(),
            delivery.kind,
            delivery.event_id,
            redrive::host_of(delivery).unwrap_or_default(),
            delivery.attempt,
            delivery.last_outcome.map_or("", AttemptOutcome::as_str),
            delivery.last_status.map(|status| status.to_string()).unwrap_or_default(),
        )
    };
    Ok(Outcome::readable(found.iter().map(line).collect(), "there are none", &unreadable))
}

/// Admin API path of a webhook's order or transfer.
fn path(subject: Subject) -> String {
    match subject {
        Subject::Order(id) => format!("orders/{id}"),
        Subject::Transfer(id) => format!("transfers/{id}"),
    }
}

/// Resends the webhook of each order or transfer that has no delivery since its last webhook was given up; with
/// `--dry-run` only lists them. Succeeds if the API refuses none, and every record can be read.
///
/// # Errors
/// The log cannot be read, or the API does not respond or refuses the secret. A rerun skips delivered webhooks.
pub(crate) async fn redrive(
    settings: Settings,
    filter: Filter,
    pace: Pace,
) -> anyhow::Result<Outcome> {
    let api = Api::new(&settings, pace.api)?;
    let reading = move || read(&settings, &filter);
    let (found, unreadable) = tokio::task::spawn_blocking(reading).await??;
    unreadable.iter().for_each(|line| say(line));
    let subjects = found.iter().filter_map(|(record, delivery)| {
        redrive::subject_of(delivery).map(|subject| (subject, record.appended_at))
    });
    let latest: BTreeMap<_, _> = subjects.collect();
    api.is_there().await?;
    let (mut sent, all) = (0_u64, latest.len());
    let mut is_success = unreadable.is_empty();
    let mut turns = tokio::time::interval(Duration::from_secs(1) / pace.rate);
    // Keeps the rate also after a slow response: missed ticks are not made up for by a burst.
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for (number, (subject, given_up)) in (1_u64..).zip(latest) {
        turns.tick().await;
        let subject = path(subject);
        let done = match api.attempts(&subject).await? {
            None => "not sent: it is not in the tables any more".to_owned(),
            Some(attempts) if is_delivered(&attempts, given_up) => "delivered since".to_owned(),
            _ if pace.dry_run => "would be sent again".to_owned(),
            _ => match api.resend(&subject).await? {
                Ok(()) => {
                    sent = sent.saturating_add(1);
                    "sent again".to_owned()
                }
                Err(problem) => {
                    is_success = false;
                    problem
                }
            },
        };
        print(&format!("{number}/{all} {subject}: {done}"));
    }
    Ok(Outcome { lines: vec![format!("{sent} of {all} were queued")], is_success })
}

/// `true` if one of these attempts delivered a webhook at this time or later.
fn is_delivered(attempts: &[Value], given_up: UnixMicros) -> bool {
    let delivered = attempts.iter().filter(|attempt| attempt["outcome"] == "delivered");
    let times = delivered.filter_map(|attempt| attempt["attempted_at"].as_i64());
    times.max().is_some_and(|at| at >= given_up.seconds().0)
}

impl Api {
    /// Refuses a URL that is not that of the Admin API: the 404 of another server would pass for a pruned order.
    async fn is_there(&self) -> anyhow::Result<()> {
        let (status, text) = self.ask(Method::GET, "wallets", None).await?;
        ensure!(
            status.is_success(),
            "{} is not the Admin API: it answers {status}: {text}",
            self.base()
        );
        Ok(())
    }

    /// The latest delivery attempts of a subject; `None` if its row was pruned from the tables.
    async fn attempts(&self, subject: &str) -> anyhow::Result<Option<Vec<Value>>> {
        let (status, text) = self.ask(Method::GET, &format!("{subject}/webhooks"), None).await?;
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&text)?))
    }

    /// Queues a resend, or returns why it is not known to be queued.
    async fn resend(&self, subject: &str) -> anyhow::Result<Result<(), String>> {
        let path = format!("{subject}/resend-webhook");
        let (status, text) = self.ask(Method::POST, &path, None).await?;
        Ok(if status.is_success() {
            Ok(())
        } else if status.is_server_error() {
            // The command may be on the log.
            Err(format!("unclear: {text}"))
        } else {
            Err(format!("not sent: {text}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use axum::Router;
    use axum::http::{HeaderMap, Uri};
    use log::embedded::EmbeddedLog;
    use log::{Log, NewRecord};
    use runtime::{ManualClock, SystemClock};
    use schemas::record::example;
    use schemas::{Layout, Partition, TransferId};

    use super::*;

    const START: UnixMicros = UnixMicros(1_790_000_000_000_000);
    /// An order that the tables no longer have. Its id sorts first, so that the redrive must continue after it.
    const GONE: OrderId = OrderId(uuid::Uuid::nil());

    /// A log with dead webhooks, one a minute: of three orders, of a transfer, and of an order that is pruned.
    async fn given_up(dir: &std::path::Path, layout: Layout) -> [OrderId; 3] {
        let clock = Arc::new(ManualClock::new(START));
        let log = EmbeddedLog::open(dir, layout, clock.clone()).unwrap();
        let orders = [1, 2, 3].map(|last| OrderId(uuid::Uuid::from_u128(last)));
        let of = |order: OrderId, url: &str, outcome| Delivery {
            order_id: Some(order),
            transfer_id: None,
            url: url.to_owned(),
            last_outcome: Some(outcome),
            last_status: Some(503).filter(|_| outcome == AttemptOutcome::Status),
            ..example::delivery()
        };
        let transfer = Delivery {
            kind: DeliveryKind::UnknownTransfer,
            order_id: None,
            transfer_id: Some(TransferId(7)),
            ..of(orders[0], "https://a.example/", AttemptOutcome::Timeout)
        };
        for delivery in [
            of(orders[0], "https://a.example/hooks", AttemptOutcome::Timeout),
            of(orders[1], "https://b.example/hooks", AttemptOutcome::Status),
            of(orders[2], "https://a.example/hooks", AttemptOutcome::Timeout),
            transfer,
            of(GONE, "https://c.example/hooks", AttemptOutcome::Timeout),
        ] {
            let key = delivery.key();
            let partition = layout.webhook(&key);
            let record = NewRecord::encode(Topic::WebhooksDead, partition, key, &delivery).unwrap();
            log.produce(vec![record]).await.unwrap();
            clock.advance(Duration::from_secs(60));
        }
        orders
    }

    /// An Admin API that records resends: one order was delivered since, and a transfer is refused.
    async fn serve(delivered: OrderId) -> (String, Arc<Mutex<Vec<String>>>) {
        let posted: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = posted.clone();
        let answer = move |method: Method, headers: HeaderMap, uri: Uri| async move {
            assert_eq!(headers["service-admin-authorization"], "admin-5vN8xK2qL7wR");
            let path = uri.path().strip_prefix("/api/v1/admin/").unwrap().to_owned();
            if path.starts_with(&format!("orders/{GONE}/")) {
                return (StatusCode::NOT_FOUND, "resource not found".to_owned());
            }
            if method == Method::GET {
                let at = START.seconds().0 + 3600;
                let attempts = format!("[{{\"outcome\":\"delivered\",\"attempted_at\":{at}}}]");
                let is_delivered = path == format!("orders/{delivered}/webhooks");
                return (StatusCode::OK, if is_delivered { attempts } else { "[]".to_owned() });
            }
            let is_transfer = path.starts_with("transfers/");
            noted.lock().unwrap().push(path);
            let status = if is_transfer { StatusCode::CONFLICT } else { StatusCode::OK };
            (status, "{}".to_owned())
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listen = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
        (listen, posted)
    }

    fn settings(dir: &std::path::Path, listen: &str) -> Settings {
        let text = format!(
            "[admin]\nsecret = \"admin-5vN8xK2qL7wR\"\n[merchant]\nsecret = \"merchant-secret-4xR6bN9wF2yH7cJ4pL0sD5\"\n[server]\nlisten = \"{listen}\"\n\
             [data]\ndir = \"{}\"\n",
            dir.display()
        );
        Settings::parse(&text, &[]).unwrap()
    }

    #[tokio::test]
    async fn those_that_fit_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path(), "127.0.0.1:0");
        let orders = given_up(dir.path(), settings.log.layout).await;
        let lines = |filter: Filter| list(&settings, &filter).unwrap().lines.len();
        let host = Some("a.example".to_owned());
        assert_eq!(lines(Filter::default()), 5);
        assert_eq!(lines(Filter { host, ..Filter::default() }), 3);
        let minute = |number: i64| Some(UnixMicros(START.0 + number * 60_000_000));
        let (since, until) = (minute(1), minute(3));
        assert_eq!(lines(Filter { since, ..Filter::default() }), 4);
        assert_eq!(lines(Filter { since, until, ..Filter::default() }), 2);
        let (outcome, kind) = (Some(AttemptOutcome::Timeout), Some(DeliveryKind::UnknownTransfer));
        assert_eq!(lines(Filter { outcome, ..Filter::default() }), 4);
        assert_eq!(lines(Filter { outcome, kind, ..Filter::default() }), 1);
        let filter = Filter { order: Some(orders[1]), ..Filter::default() };
        let listed = list(&settings, &filter).unwrap().lines;
        assert_eq!(listed.len(), 1);
        assert!(listed[0].contains(" for b.example after attempt 2: status 503"), "{listed:?}");
        let filter = Filter { order: Some(orders[1]), outcome, ..Filter::default() };
        assert_eq!(list(&settings, &filter).unwrap().lines, ["there are none"]);
    }

    #[tokio::test]
    async fn an_unreadable_record_hides_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path(), "127.0.0.1:0");
        let layout = settings.log.layout;
        given_up(dir.path(), layout).await;
        let log = EmbeddedLog::open(dir.path(), layout, Arc::new(SystemClock)).unwrap();
        let delivery = example::delivery();
        let garbage = NewRecord::encode(Topic::WebhooksDead, Partition(0), "x", &delivery).unwrap();
        log.produce(vec![NewRecord { value: Some(vec![9]), ..garbage }]).await.unwrap();
        let listed = list(&settings, &Filter::default()).unwrap();
        assert_eq!((listed.lines.len(), listed.is_success), (5, false), "{:?}", listed.lines);
    }

    #[tokio::test]
    async fn what_was_not_delivered_since_is_sent_again() {
        let dir = tempfile::tempdir().unwrap();
        let before = settings(dir.path(), "127.0.0.1:0");
        let orders = given_up(dir.path(), before.log.layout).await;
        let (listen, posted) = serve(orders[0]).await;
        let settings = settings(dir.path(), &listen);
        let run = async |dry_run, host: Option<&str>| {
            let filter = Filter { host: host.map(str::to_owned), ..Filter::default() };
            let pace = Pace { dry_run, rate: 1000, api: None };
            redrive(settings.clone(), filter, pace).await.unwrap().lines
        };
        let host = Some("a.example");
        assert_eq!(run(true, host).await, ["0 of 3 were queued"]);
        assert_eq!(*posted.lock().unwrap(), [""; 0]);
        assert_eq!(run(false, host).await, ["1 of 3 were queued"], "the transfer is refused");
        let sent = format!("orders/{}/resend-webhook", orders[2]);
        assert_eq!(*posted.lock().unwrap(), [sent, "transfers/7/resend-webhook".to_owned()]);
        assert_eq!(run(false, None).await, ["2 of 5 were queued"], "those after one that is gone");
        // No route: every request gets 404.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let other = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move { axum::serve(listener, Router::new()).await });
        let pace = Pace { dry_run: false, rate: 1, api: Some(other) };
        let refused = redrive(settings.clone(), Filter::default(), pace).await.err().unwrap();
        assert!(refused.to_string().contains("is not the Admin API"), "{refused}");
    }
}
