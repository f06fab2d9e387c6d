//! CSV exports of the console: lists of the Admin API, and topics without one.

use std::collections::VecDeque;

use axum::body::Body;
use futures_util::{StreamExt as _, stream};
use log::{Offset, Record, TopicPartition};
use serde_json::Value;

use super::*;
use crate::changes::first_at;
use crate::machine::csv;
use crate::redrive;
use crate::routes::listing;

/// Time from which a whole topic is exported.
const ALL: UnixMicros = UnixMicros(0);
/// Records per read.
const PAGE: usize = 500;
const ALERTS: File = File {
    name: "alerts",
    topic: Topic::Alerts,
    columns: "number,raised_at,state,alert_id,kind,blockchain,message,order_id,transfer_id",
};
const AUDIT: File = File {
    name: "audit",
    topic: Topic::Audit,
    columns: "number,requested_at,operator,client,action,subject,order_id,transfer_id,command_id",
};
/// Dead letters, without keys and values, which are bytes.
const DEAD_LETTERS: File = File {
    name: "dead-letters",
    topic: Topic::DeadLetters,
    columns: "number,failed_at,topic,partition,offset,group,reason",
};
/// Dead webhooks, without bodies and URLs.
const DELIVERIES: File = File {
    name: "deliveries",
    topic: Topic::WebhooksDead,
    columns: "written_at,event_id,kind,order_id,transfer_id,host,manual,emitted_at,requests,\
              last_outcome,last_status",
};

/// The records of a topic as a file, the oldest of each partition first.
struct File {
    name: &'static str,
    topic: Topic,
    /// Fields of the records as JSON, and `number`, `written_at` and `host`, separated by commas.
    columns: &'static str,
}

/// A file that is being written.
struct Export {
    log: Arc<dyn Log>,
    by: Operator,
    file: &'static File,
    filter: Filter,
    /// Records still to be read: each partition up to its end when the export began.
    places: VecDeque<(TopicPartition, Offset, Offset)>,
}

impl Export {
    /// The lines of the next records; none after the last.
    async fn next(&mut self) -> Answer<Option<String>> {
        let Some((of, next, end)) = self.places.pop_front() else { return Ok(None) };
        let (log, gate) = (self.log.clone(), self.by.list_gate.clone());
        let read = move || log.read(of, next, PAGE);
        let read =
            async { Ok(tokio::task::spawn_blocking(read).await.map_err(|_| Refusal::Internal)??) };
        let page = gate.take(read).await?;
        if let Some(last) = page.last().filter(|last| last.offset.next() < end) {
            self.places.push_front((of, last.offset.next(), end));
        }
        let rows = page.iter().filter(|record| record.offset < end);
        Ok(Some(rows.filter_map(|record| self.line(record)).collect()))
    }

    /// Line of a record. If this version cannot read the record, the line has only its number; a webhook then has no
    /// line, because the filter cannot be applied.
    fn line(&self, record: &Record) -> Option<String> {
        let value = record.value.as_deref()?;
        let decoded = schemas::decode_json(self.file.topic.spec().schema, value);
        let mut object = decoded.unwrap_or_else(|_| json!({}));
        object["number"] = record.offset.0.into();
        object["written_at"] = record.appended_at.to_rfc3339().into();
        if self.file.topic == Topic::WebhooksDead {
            let delivery: Delivery = schemas::decode(value).ok()?;
            if !self.filter.fits(record.appended_at, &delivery) {
                return None;
            }
            object["host"] = redrive::host_of(&delivery).map_or(Value::Null, Value::from);
        }
        Some(csv::line(&object, self.file.columns))
    }
}

impl Desk {
    /// Streams a file. A failure ends the connection, so that no client takes a part for the whole.
    async fn file(&self, file: &'static File, filter: Filter, since: UnixMicros) -> Answer {
        let places = self.inspect(move |reader| {
            let log = reader.source().0.clone();
            let place = |partition| {
                let of = TopicPartition { topic: file.topic, partition };
                let bounds = log.bounds(of)?;
                let start = first_at(bounds, since, |from| log.read(of, from, 1))?;
                Ok((of, start, bounds.end))
            };
            file.topic.all_partitions(&reader.layout).map(place).collect()
        });
        let (log, by) = (self.console.log.clone(), self.visit.operator.clone());
        let export = Export { log, by, file, filter, places: places.await? };
        let lines = stream::unfold(Some(export), |export| async move {
            let mut export = export?;
            match export.next().await {
                Ok(None) => None,
                Ok(Some(text)) => Some((Ok(text), Some(export))),
                Err(refusal) => Some((Err(refusal), None)),
            }
        });
        let head = stream::iter([Ok(csv::head(file.columns))]);
        Ok(listing::file(file.name, Body::from_stream(head.chain(lines))))
    }
}

/// `GET /console/export/alerts`
pub(super) async fn alerts(desk: Desk) -> Answer {
    desk.file(&ALERTS, Filter::default(), ALL).await
}

/// `GET /console/export/audit`
pub(super) async fn audit(desk: Desk) -> Answer {
    desk.file(&AUDIT, Filter::default(), ALL).await
}

/// `GET /console/export/dead-letters`
pub(super) async fn dead_letters(desk: Desk) -> Answer {
    desk.file(&DEAD_LETTERS, Filter::default(), ALL).await
}

/// `GET /console/export/deliveries?host=&outcome=&kind=`
pub(super) async fn deliveries(desk: Desk, query: Query) -> Answer {
    let since = desk.console.clock.now().seconds().plus(-GIVEN_UP_SECONDS).micros();
    desk.file(&DELIVERIES, of_filter(&query)?, since).await
}

/// `GET /console/export/transfers`
pub(super) async fn transfers(by: Operator, State(reads): State<Reads>, query: Query) -> Answer {
    let within = query.within("created_from", "created_before")?;
    let filter = TransferFilter { status: chosen(&query, "status")?, ..TransferFilter::default() };
    let read = move |within, page| {
        let reads = reads.clone();
        async move { reads.all_transfers(TransferFilter { within, ..filter }, page).await }
    };
    admin::TRANSFERS.answer(&by, &query, within, read).await
}
