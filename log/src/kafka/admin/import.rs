//! Topics being filled by `tidemark import`. A marker topic exists from before their creation until
//! they are complete, so that no process uses a partial installation.

use rdkafka::admin::{NewTopic, TopicReplication};
use rdkafka::error::RDKafkaErrorCode;
use schemas::{Layout, Topic};

use super::{Admin, REQUEST_TIMEOUT, await_shown, options};
use crate::Error;
use crate::config::KafkaConfig;

/// Name of the marker topic, after the prefix.
const MARK: &str = "tidemark-import";

/// Creates empty topics that no process uses until [`end_import`]. Removes those of an interrupted import first.
///
/// # Errors
/// [`Error::Fatal`], and nothing was changed, if other topics have the configured prefix.
pub fn begin_import(config: &KafkaConfig, layout: &Layout) -> Result<(), Error> {
    let admin = Admin::new(config, layout)?;
    let found = admin.found(&Topic::ALL)?;
    if admin.has_mark()? {
        let names: Result<Vec<_>, Error> =
            found.keys().map(|topic| Ok(admin.names.topic(*topic)?.full.as_str())).collect();
        admin.remove(&names?)?;
    } else if let Some(topic) = found.keys().min() {
        let name = &admin.names.topic(*topic)?.full;
        return Err(Error::fatal(format!(
            "there is {name} already: an import makes its topics, so name another log.prefix"
        )));
    } else {
        admin.make_mark()?;
    }
    admin.make(&Topic::ALL).map(drop)
}

/// Ends the import.
pub fn end_import(config: &KafkaConfig, layout: &Layout) -> Result<(), Error> {
    let admin = Admin::new(config, layout)?;
    let mark = admin.mark();
    admin.remove(&[mark.as_str()])
}

/// Returns `true` if an import has begun and not ended.
pub fn is_importing(config: &KafkaConfig, layout: &Layout) -> Result<bool, Error> {
    Admin::new(config, layout)?.has_mark()
}

impl Admin<'_> {
    fn mark(&self) -> String {
        format!("{}{MARK}", self.names.prefix())
    }

    fn has_mark(&self) -> Result<bool, Error> {
        Ok(!self.present(&[self.mark().as_str()])?.is_empty())
    }

    fn make_mark(&self) -> Result<(), Error> {
        let mark = self.mark();
        let replication = TopicReplication::Fixed(i32::from(self.replication));
        let request = NewTopic::new(&mark, 1, replication);
        self.check(self.ask(self.client.create_topics([&request], &options()))?, None)?;
        await_shown("the mark of an import", || self.has_mark())
    }

    /// Returns which of these topics the brokers have.
    fn present(&self, names: &[&str]) -> Result<Vec<String>, Error> {
        let metadata = self.client.inner().fetch_metadata(None, REQUEST_TIMEOUT);
        let metadata = metadata.map_err(|error| self.explain(error))?;
        let found = metadata.topics().iter().map(|topic| topic.name());
        Ok(found.filter(|name| names.contains(name)).map(str::to_owned).collect())
    }

    fn remove(&self, names: &[&str]) -> Result<(), Error> {
        if names.is_empty() {
            return Ok(());
        }
        let deleted = self.ask(self.client.delete_topics(names, &options()))?;
        self.check(deleted, Some(RDKafkaErrorCode::UnknownTopicOrPartition))?;
        await_shown("the end of the topics", || Ok(self.present(names)?.is_empty()))
    }
}
