//! One trace for each order: that of the first request about it. Outputs that follow from chains and timers join it, so
//! that the trace covers an order from its create to its last webhook.

use std::collections::HashMap;
use std::time::Instant;

use log::{NewRecord, Record};
use runtime::traces::{self, Context, Kind};
use schemas::{HEADER_TRACEPARENT, OrderId};

/// Trace of each order. It is a header of the order's changelog entry, and unknown to the machines.
#[derive(Debug, Clone, Default)]
pub(super) struct Traces(HashMap<OrderId, Context>);

fn order_of(key: &[u8]) -> Option<OrderId> {
    std::str::from_utf8(key).ok()?.parse().ok()
}

impl Traces {
    /// Restores from a changelog entry.
    pub(super) fn restore(&mut self, entry: &Record) {
        let context = entry.traceparent().filter(|_| entry.value.is_some());
        let Some(order) = order_of(&entry.key).filter(|_| context.is_some() || !self.0.is_empty())
        else {
            return;
        };
        match context.and_then(Context::parse) {
            Some(context) => drop(self.0.insert(order, context)),
            None => drop(self.0.remove(&order)),
        }
    }

    /// Puts the outputs of an input without a trace into the order's: the first trace of an input about the order.
    pub(super) fn join(&mut self, order: OrderId, input: &Record, outputs: &mut [NewRecord]) {
        if let Some(traceparent) = input.traceparent() {
            let context = Context::parse(traceparent);
            context.map(|context| self.0.entry(order).or_insert(context));
        } else if let Some(context) = self.0.get(&order) {
            let traceparent = context.traceparent();
            for output in outputs {
                output.headers.push(HEADER_TRACEPARENT, traceparent.as_bytes());
            }
        }
    }

    /// Writes the trace of each order into its changelog entry, and drops the traces of forgotten orders.
    pub(super) fn keep(&mut self, entries: &mut [NewRecord]) {
        if self.0.is_empty() {
            return;
        }
        for entry in entries {
            let Some(order) = order_of(&entry.key) else { continue };
            if entry.value.is_none() {
                self.0.remove(&order);
            } else if let Some(context) = self.0.get(&order) {
                let traceparent = context.traceparent();
                entry.headers.push(HEADER_TRACEPARENT, traceparent.as_bytes());
            }
        }
    }
}

/// Exports a span in each trace that an input or one of its outputs belongs to.
pub(super) fn export(name: &'static str, begun: Instant, input: &Record, outputs: &[NewRecord]) {
    if !traces::is_on() {
        return;
    }
    let of_outputs = outputs.iter().filter_map(|output| output.headers.get(HEADER_TRACEPARENT));
    let mut found: Vec<Context> = Vec::new();
    for context in input.traceparent().into_iter().chain(of_outputs).filter_map(Context::parse) {
        if !found.contains(&context) {
            found.push(context);
        }
    }
    for context in found {
        if let Some(mut span) = traces::begin_since(name, Kind::Consumer, context, begun) {
            span.set("kafka.topic", input.from.topic);
            span.set("kafka.partition", input.from.partition);
            span.set("kafka.offset", input.offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use log::{Offset, TopicPartition};
    use schemas::{Headers, Partition, Topic, UnixMicros};
    use uuid::Uuid;

    use super::*;

    const FIRST: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const SECOND: &[u8] = b"00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const ORDER: OrderId = OrderId(Uuid::from_u128(7));

    fn headers(traceparent: Option<&[u8]>) -> Headers {
        traceparent.into_iter().map(|text| (HEADER_TRACEPARENT, text)).collect()
    }

    fn record(traceparent: Option<&[u8]>, value: Option<Vec<u8>>) -> Record {
        let from = TopicPartition { topic: Topic::OrdersCommands, partition: Partition(0) };
        let (key, headers) = (ORDER.to_string().into_bytes(), headers(traceparent));
        Record { from, offset: Offset(0), appended_at: UnixMicros(0), key, value, headers }
    }

    fn output(value: Option<Vec<u8>>) -> NewRecord {
        let to = TopicPartition { topic: Topic::Orders, partition: Partition(0) };
        NewRecord { to, key: ORDER.to_string().into_bytes(), value, headers: headers(None) }
    }

    /// The traceparent of the output of an input.
    fn joined(traces: &mut Traces, input: Option<&[u8]>) -> Option<Vec<u8>> {
        let mut outputs = [output(None)];
        traces.join(ORDER, &record(input, None), &mut outputs);
        outputs[0].headers.get(HEADER_TRACEPARENT).map(<[u8]>::to_vec)
    }

    #[test]
    fn what_has_no_trace_joins_that_of_its_order() {
        let mut traces = Traces::default();
        assert_eq!(joined(&mut traces, None), None);
        // `wire::take` copies an input's trace to the outputs.
        assert_eq!(joined(&mut traces, Some(FIRST)), None);
        assert_eq!(joined(&mut traces, None).as_deref(), Some(FIRST));
        assert_eq!(joined(&mut traces, Some(SECOND)), None);
        assert_eq!(joined(&mut traces, None).as_deref(), Some(FIRST), "the first one stays");
        let mut broken = Traces::default();
        assert_eq!(joined(&mut broken, Some(b"no trace")), None);
        assert_eq!(joined(&mut broken, None), None);
    }

    #[test]
    fn a_trace_survives_a_restart_and_goes_with_its_order() {
        let mut traces = Traces::default();
        joined(&mut traces, Some(FIRST));
        let mut entries = [output(Some(vec![1]))];
        traces.keep(&mut entries);
        let kept = entries[0].headers.get(HEADER_TRACEPARENT);
        assert_eq!(kept, Some(FIRST));
        let mut restored = Traces::default();
        restored.restore(&record(kept, Some(vec![1])));
        assert_eq!(joined(&mut restored, None).as_deref(), Some(FIRST));
        restored.restore(&record(None, None));
        assert_eq!(joined(&mut restored, None), None);
        traces.keep(&mut [output(None)]);
        assert_eq!(joined(&mut traces, None), None);
    }
}
