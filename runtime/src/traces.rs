//! Spans of traces, by the `traceparent` of requests and records (W3C Trace Context). Export never
//! blocks: spans beyond the queue's room are counted and dropped.

use std::sync::{PoisonError, RwLock};
use std::time::Instant;

use metrics::counter;
use schemas::UnixMicros;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use uuid::Uuid;

use crate::{Clock, SystemClock};

/// Capacity of the exporter's queue, in spans.
pub const WAITING_MAX: usize = 8192;
const OUTCOMES: &[&str] = &["sent", "dropped"];
/// The exporter's queue; none while no spans are exported.
static QUEUE: RwLock<Option<Sender<Span>>> = RwLock::new(None);

crate::metrics! {
    /// Spans of traces that `telemetry.otlp_endpoint` took, or that were dropped: it took none, or too many waited.
    Counter SPANS = "tidemark_runtime_spans_total" [outcome in OUTCOMES];
}

/// Counts spans that were sent or dropped.
pub fn count(is_sent: bool, spans: usize) {
    let outcome = OUTCOMES[usize::from(!is_sent)];
    counter!(SPANS, "outcome" => outcome).increment(u64::try_from(spans).unwrap_or(u64::MAX));
}

/// A trace, and a parent span in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    pub trace: u128,
    /// 0 if the trace begins here.
    pub parent: u64,
    /// `true` if the caller that began the trace wants its spans.
    pub is_sampled: bool,
}

impl Context {
    /// Context of a new trace with this id.
    #[must_use]
    pub const fn new(trace: u128) -> Self {
        Self { trace, parent: 0, is_sampled: true }
    }

    /// Parses a `traceparent`; `None` if it is not one of version 00.
    #[must_use]
    pub fn parse(traceparent: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(traceparent).ok()?;
        let is_hex = |part: &&str| part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let parts: Vec<_> = text.split('-').filter(is_hex).collect();
        let [version, trace, parent, flags] = *parts else { return None };
        if text.len() != 55 || (version, trace.len(), parent.len()) != ("00", 32, 16) {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|id| *id != 0)?;
        let parent = u64::from_str_radix(parent, 16).ok().filter(|id| *id != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self { trace, parent, is_sampled: flags & 1 == 1 })
    }

    /// The `traceparent` to propagate.
    #[must_use]
    pub fn traceparent(&self) -> String {
        let Self { trace, parent, is_sampled } = self;
        format!("00-{trace:032x}-{parent:016x}-{:02x}", u8::from(*is_sampled))
    }
}

/// Kind of a span, in the numbers of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Internal = 1,
    /// A request that was answered.
    Server = 2,
    /// A request that was made.
    Client = 3,
    /// A record that was read.
    Consumer = 5,
}

/// A timed operation.
#[derive(Debug, Clone)]
pub struct Span {
    pub context: Context,
    pub id: u64,
    pub name: String,
    pub kind: Kind,
    pub start: UnixMicros,
    pub end: UnixMicros,
    pub attributes: Vec<(&'static str, String)>,
    pub is_failed: bool,
}

/// An unfinished span; ends when dropped.
#[derive(Debug)]
pub struct Running {
    /// None if it is not to be exported after all.
    span: Option<Span>,
    begun: Instant,
}

/// Returns `true` if spans are exported.
#[must_use]
pub fn is_on() -> bool {
    QUEUE.read().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Begins the export of spans; the receiver exports them.
#[must_use]
pub fn start() -> Receiver<Span> {
    let (sender, receiver) = channel(WAITING_MAX);
    *QUEUE.write().unwrap_or_else(PoisonError::into_inner) = Some(sender);
    receiver
}

/// Ends the export of spans.
pub fn stop() {
    *QUEUE.write().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Begins a span of a trace; none if it is not to be exported.
#[must_use]
pub fn begin(name: impl Into<String>, kind: Kind, context: Context) -> Option<Running> {
    begin_since(name, kind, context, Instant::now())
}

/// As [`begin`], with an earlier start.
#[must_use]
pub fn begin_since(
    name: impl Into<String>,
    kind: Kind,
    context: Context,
    begun: Instant,
) -> Option<Running> {
    if !context.is_sampled || !is_on() {
        return None;
    }
    let start = SystemClock.now().0.saturating_sub(micros(begun));
    let (_, id) = Uuid::now_v7().as_u64_pair();
    let (name, start, attributes) = (name.into(), UnixMicros(start), Vec::new());
    let span = Span { context, id, name, kind, start, end: start, attributes, is_failed: false };
    Some(Running { span: Some(span), begun })
}

fn micros(since: Instant) -> i64 {
    i64::try_from(since.elapsed().as_micros()).unwrap_or(i64::MAX)
}

impl Running {
    /// The context to propagate.
    #[must_use]
    pub fn context(&self) -> Context {
        let span = self.span.as_ref();
        span.map_or(Context::new(0), |span| Context { parent: span.id, ..span.context })
    }

    /// Adds an attribute.
    pub fn set(&mut self, name: &'static str, value: impl ToString) {
        if let Some(span) = &mut self.span {
            span.attributes.push((name, value.to_string()));
        }
    }

    /// Marks the span as failed.
    pub fn fail(&mut self) {
        if let Some(span) = &mut self.span {
            span.is_failed = true;
        }
    }

    /// Drops the span without exporting it.
    pub fn discard(mut self) {
        self.span = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut span) = self.span.take() else { return };
        span.end = UnixMicros(span.start.0.saturating_add(micros(self.begun)));
        let queue = QUEUE.read().unwrap_or_else(PoisonError::into_inner);
        if queue.as_ref().is_none_or(|queue| queue.try_send(span).is_err()) {
            count(false, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_as_it_is_written() {
        let context = Context::parse(TEXT.as_bytes()).unwrap();
        assert!(context.is_sampled);
        assert_eq!(context.traceparent(), TEXT);
        let quiet = Context::parse(TEXT.replace("-01", "-00").as_bytes()).unwrap();
        assert_eq!(quiet, Context { is_sampled: false, ..context });
        for wrong in [
            "",
            &TEXT.replace("00-4b", "01-4b"),
            &TEXT.replace('f', "F"),
            &TEXT.replace("4bf9", "+bf9"),
            &TEXT[1..],
            &format!("{TEXT}-00"),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        ] {
            assert_eq!(Context::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    /// One test: the queue is shared by the whole process.
    #[test]
    fn nothing_waits_for_the_exporter() {
        let context = Context::parse(TEXT.as_bytes()).unwrap();
        let begin = || begin("name", Kind::Internal, context);
        assert!(begin().is_none(), "nobody reads them");
        let mut spans = start();
        let unsampled = Context { is_sampled: false, ..context };
        assert!(super::begin("name", Kind::Internal, unsampled).is_none());
        begin().unwrap().discard();
        let mut first = begin().unwrap();
        first.set("key", 7);
        first.fail();
        let caused = first.context();
        drop(first);
        let span = spans.try_recv().unwrap();
        assert_eq!((span.context, span.is_failed), (context, true));
        assert_eq!((caused.trace, caused.parent), (context.trace, span.id));
        assert_eq!(span.attributes, [("key", "7".to_owned())]);
        assert!(span.start <= span.end && span.id != 0);
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            (0..WAITING_MAX + 3).for_each(|_| drop(begin()));
        });
        assert_eq!(spans.len(), WAITING_MAX);
        let text = recorder.handle().render();
        assert!(text.contains("tidemark_runtime_spans_total{outcome=\"dropped\"} 3"), "{text}");
        stop();
        assert!(begin().is_none());
    }
}
