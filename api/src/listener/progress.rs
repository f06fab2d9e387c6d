//! Progress of a connection with its present request, and the bodies that record it.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};
use runtime::config::Connections;
use tokio::time::{Instant, Sleep, sleep_until};

/// Metric labels of the input awaited outside of a request: the next request, and the end of its head.
const REQUEST: &str = "idle";
const HEAD: &str = "header";

/// Present request of a connection. One task at a time reads and writes it.
#[derive(Debug)]
pub(super) struct Progress {
    /// Awaited input and its deadline; none during a request, whose body has a timeout.
    awaited: Mutex<Option<(&'static str, Instant)>>,
    /// `true` while a part of the present request's body is awaited.
    is_arriving: AtomicBool,
    bounds: Connections,
}

impl Progress {
    /// Progress of a connection opened now; the header timeout starts at once.
    pub(super) fn new(bounds: Connections) -> Self {
        let awaited = Some((HEAD, Instant::now() + bounds.header_timeout));
        Self { awaited: Mutex::new(awaited), is_arriving: AtomicBool::default(), bounds }
    }

    /// Begins a request, whose headers have arrived. It ends when the guard is dropped.
    pub(super) fn begin(of: &Arc<Self>) -> RequestGuard {
        *of.lock() = None;
        RequestGuard(of.clone())
    }

    /// Notes input of the client. Between two requests it starts the header timeout.
    pub(super) fn came(&self) {
        let mut awaited = self.lock();
        if let Some((REQUEST, _)) = *awaited {
            *awaited = Some((HEAD, Instant::now() + self.bounds.header_timeout));
        }
    }

    pub(super) fn awaited(&self) -> Option<(&'static str, Instant)> {
        *self.lock()
    }

    pub(super) fn is_in_request(&self) -> bool {
        self.awaited().is_none()
    }

    pub(super) fn is_arriving(&self) -> bool {
        self.is_arriving.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Option<(&'static str, Instant)>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct RequestGuard(Arc<Progress>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let until = Instant::now() + self.0.bounds.idle_timeout;
        *self.0.lock() = Some((REQUEST, until));
    }
}

/// Timeout of a request's body.
#[derive(Debug, thiserror::Error)]
#[error("the body did not arrive in time")]
pub(crate) struct BodyLate;

/// Request body with a deadline.
pub(super) struct Arriving {
    body: Incoming,
    progress: Arc<Progress>,
    until: Instant,
    /// `None` until the body is awaited: most bodies need no timer.
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

/// Response body; the request ends when it is dropped.
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
