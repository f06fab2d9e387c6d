//! Progress of a connection with its present request, and the bodies that record it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

/// Present request of a connection. One task at a time reads and writes it.
#[derive(Debug)]
pub(super) struct Progress {
    /// Twice the number of finished requests, plus 1 while one is being answered: odd means in a
    /// request.
    requests: AtomicU64,
    /// `true` while a part of the present request's body is awaited.
    is_arriving: AtomicBool,
    /// Time of the last answer, in microseconds after `opened_at`.
    ended_at: AtomicU64,
    opened_at: Instant,
}

impl Progress {
    /// Progress of a connection opened now.
    pub(super) fn new() -> Self {
        let (requests, ended_at, is_arriving) = Default::default();
        Self { requests, is_arriving, ended_at, opened_at: Instant::now() }
    }

    /// Begins a request, whose headers have arrived. It ends when the guard is dropped.
    pub(super) fn begin(of: &Arc<Self>) -> RequestGuard {
        of.requests.fetch_add(1, Ordering::Relaxed);
        RequestGuard(of.clone())
    }

    pub(super) fn is_in_request(&self) -> bool {
        self.requests() % 2 == 1
    }

    pub(super) fn is_arriving(&self) -> bool {
        self.is_arriving.load(Ordering::Relaxed)
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Acquire)
    }

    /// Start of the idle time between two requests.
    pub(super) fn ended_at(&self) -> Instant {
        self.opened_at + Duration::from_micros(self.ended_at.load(Ordering::Relaxed))
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct RequestGuard(Arc<Progress>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let open = self.0.opened_at.elapsed().as_micros();
        self.0.ended_at.store(u64::try_from(open).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.0.requests.fetch_add(1, Ordering::Release);
    }
}

/// The body of a request took longer than it may.
#[derive(Debug, thiserror::Error)]
#[error("the body did not arrive in time")]
pub(crate) struct BodyLate;

/// The body of a request, which has to arrive within a time.
pub(super) struct Arriving {
    body: Incoming,
    progress: Arc<Progress>,
    until: Instant,
    /// Most bodies come with their headers and need no alarm.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Arriving {
    pub(super) fn new(body: Incoming, progress: &Arc<Progress>, limit: Duration) -> Self {
        progress.is_arriving.store(!body.is_end_stream(), Ordering::Relaxed);
        Self { body, progress: progress.clone(), until: Instant::now() + limit, alarm: None }
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            let is_arriving = frame.is_some() && !self.body.is_end_stream();
            self.progress.is_arriving.store(is_arriving, Ordering::Relaxed);
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let until = self.until;
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(until)));
        ready!(alarm.as_mut().poll(context));
        crate::metrics::connection_timed_out("body");
        Poll::Ready(Some(Err(BodyLate.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.progress.is_arriving.store(false, Ordering::Relaxed);
    }
}

/// The body of an answer: with its end the request ends.
pub(super) struct Leaving {
    body: Body,
    _guard: RequestGuard,
}

impl Leaving {
    pub(super) fn new(body: Body, guard: RequestGuard) -> Self {
        Self { body, _guard: guard }
    }
}

impl HttpBody for Leaving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
