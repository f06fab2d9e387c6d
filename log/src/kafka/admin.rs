//! Topics on the brokers: created, corrected and checked from the one topic table. All calls block. They
//! fail with [`Error::Transient`] if the brokers cannot be reached or refuse.
//!
//! Ids and the order of records depend on the number of partitions. It changes only when chains are
//! added: their partitions come last.

mod difference;
mod import;

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::time::{Duration, Instant};

use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, ConfigSource, NewPartitions, NewTopic,
    ResourceSpecifier, TopicReplication, TopicResult,
};
use rdkafka::error::{KafkaResult, RDKafkaErrorCode};
use rdkafka::metadata::MetadataTopic;
use schemas::{Blockchain, Layout, Topic};

pub use self::difference::Difference;
pub use self::import::{begin_import, end_import, is_importing};

use self::difference::{Found, Setting, corrections, differences, lacks_chains, suffices, wanted};
use super::client::context::PlainContext;
use super::client::name::Names;
use super::client::{open, settings};
use crate::config::KafkaConfig;
use crate::{Cause, Error};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of polling the brokers for a change.
const CHANGE_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Creates missing topics, adds partitions for chains newer than the topics, and corrects settings
/// that do not suffice; settings that the topic table lacks stay. Returns a line for each change.
///
/// # Errors
/// [`Error::Fatal`], and nothing was changed, if a topic has the partitions of another layout.
pub fn create_topics(config: &KafkaConfig, layout: &Layout) -> Result<Vec<String>, Error> {
    Admin::new(config, layout)?.create(&Topic::ALL)
}

/// Creates these topics, provided that no topic of the table exists under the configured prefix.
///
/// # Errors
/// [`Error::Fatal`], and nothing was created, if one exists.
pub fn create_beside(config: &KafkaConfig, layout: &Layout, topics: &[Topic]) -> Result<(), Error> {
    let admin = Admin::new(config, layout)?;
    if let Some(topic) = admin.found(&Topic::ALL)?.keys().min() {
        let name = &admin.names.topic(*topic)?.full;
        return Err(Error::fatal(format!(
            "the prefix {:?} is in use: there is {name}",
            config.prefix
        )));
    }
    admin.make(topics).map(drop)
}

/// Compares the topics on the brokers with the topic table and the configuration.
pub fn check_topics(config: &KafkaConfig, layout: &Layout) -> Result<Vec<Difference>, Error> {
    let admin = Admin::new(config, layout)?;
    let found = admin.found(&Topic::ALL)?;
    let chains = chains(&found);
    let mut all = Vec::new();
    for topic in Topic::ALL {
        let (name, found) = (&admin.names.topic(topic)?.full, found.get(&topic));
        all.extend(differences(topic, name, layout, config.replication, found, chains));
    }
    Ok(all)
}

/// Number of chains that the topics were made for, if they exist.
fn chains(found: &HashMap<Topic, Found>) -> Option<usize> {
    found.get(&Topic::Chains).map(|found| found.partitions)
}

/// Creates only these topics, for tests.
#[doc(hidden)]
pub fn create_some(config: &KafkaConfig, layout: &Layout, topics: &[Topic]) -> Result<(), Error> {
    Admin::new(config, layout)?.create(topics).map(drop)
}

/// Creates all topics with partitions for only the first `chains` chains, for tests.
#[doc(hidden)]
pub fn create_for_chains(config: &KafkaConfig, layout: &Layout, chains: u32) -> Result<(), Error> {
    let admin = Admin { chains, ..Admin::new(config, layout)? };
    admin.make(&Topic::ALL).map(drop)
}

/// Changes settings of a topic, such as to expire records soon, for tests.
#[doc(hidden)]
pub fn alter_topic(
    config: &KafkaConfig,
    layout: &Layout,
    topic: Topic,
    settings: &[(&'static str, String)],
) -> Result<(), Error> {
    let admin = Admin::new(config, layout)?;
    let found = admin.found(&[topic])?;
    let own = found.get(&topic).map(|found| found.own.clone()).unwrap_or_default();
    admin.alter(topic, own, settings)
}

/// Deletes topics after a test.
#[doc(hidden)]
pub fn delete_topics(config: &KafkaConfig, layout: &Layout, topics: &[Topic]) -> Result<(), Error> {
    let admin = Admin::new(config, layout)?;
    let mut names = Vec::new();
    for topic in topics {
        names.push(admin.names.topic(*topic)?.full.as_str());
    }
    admin.ask(admin.client.delete_topics(&names, &options())).map(drop)
}

/// Deletes the offsets of a group without members, as the broker does when they expire, for tests.
#[doc(hidden)]
pub fn delete_group(config: &KafkaConfig, layout: &Layout, group: &str) -> Result<(), Error> {
    let admin = Admin::new(config, layout)?;
    let group = format!("{}{group}", config.prefix);
    let deleted = admin.ask(admin.client.delete_groups(&[&group], &options()))?;
    admin.check(deleted, None)
}

struct Admin<'a> {
    client: AdminClient<PlainContext>,
    names: Names,
    layout: &'a Layout,
    chains: u32,
    replication: u16,
}

fn options() -> AdminOptions {
    AdminOptions::new()
        .request_timeout(Some(REQUEST_TIMEOUT))
        .operation_timeout(Some(REQUEST_TIMEOUT))
}

impl<'a> Admin<'a> {
    fn new(config: &KafkaConfig, layout: &'a Layout) -> Result<Self, Error> {
        let settings = settings::client(config);
        let client = open(&settings, PlainContext::default())?;
        let names = Names::new(&config.prefix, layout);
        Ok(Self {
            client,
            names,
            layout,
            chains: Blockchain::COUNT,
            replication: config.replication,
        })
    }

    fn explain(&self, error: impl Into<Cause>) -> Error {
        Error::Transient(self.client.inner().context().last.explain(error))
    }

    fn ask<T>(&self, answer: impl Future<Output = KafkaResult<T>>) -> Result<T, Error> {
        futures_executor::block_on(answer).map_err(|error| self.explain(error))
    }

    /// Fails with the first refusal of a request for another reason than `ignored`.
    fn check(
        &self,
        results: Vec<TopicResult>,
        ignored: Option<RDKafkaErrorCode>,
    ) -> Result<(), Error> {
        let mut refusals = results.into_iter().filter_map(Result::err);
        match refusals.find(|(_, code)| Some(*code) != ignored) {
            Some((name, code)) => Err(self.explain(format!("{name}: {code}"))),
            None => Ok(()),
        }
    }

    fn create(&self, topics: &[Topic]) -> Result<Vec<String>, Error> {
        let found = self.found(&Topic::ALL)?;
        self.refuse_other_layout(&found)?;
        let missing: Vec<Topic> =
            topics.iter().filter(|topic| !found.contains_key(topic)).copied().collect();
        // `chains` grows last: its partition count is the number of chains that the topics were
        // made for.
        let (last, first): (Vec<_>, Vec<_>) =
            topics.iter().copied().partition(|topic| *topic == Topic::Chains);
        let mut changes = self.grow(&first, &found)?;
        changes.extend(self.grow(&last, &found)?);
        changes.extend(self.make(&missing)?);
        for (topic, found) in found.into_iter().filter(|(topic, _)| topics.contains(topic)) {
            let corrections = corrections(topic, self.replication, &found);
            if corrections.is_empty() {
                continue;
            }
            self.alter(topic, found.own, &corrections)?;
            let name = &self.names.topic(topic)?.full;
            let line = |(setting, value): Setting| format!("set {setting} of {name} to {value}");
            changes.extend(corrections.into_iter().map(line));
        }
        changes.sort();
        Ok(changes)
    }

    /// Rejects a wrong layout: partitions cannot be removed, so its changes would be permanent.
    fn refuse_other_layout(&self, found: &HashMap<Topic, Found>) -> Result<(), Error> {
        let chains = chains(found);
        let mut others = Vec::new();
        for (topic, found) in found {
            let name = &self.names.topic(*topic)?.full;
            let all = differences(*topic, name, self.layout, self.replication, Some(found), chains);
            others
                .extend(all.into_iter().filter(|one| matches!(one, Difference::Partitions { .. })));
        }
        if others.is_empty() {
            return Ok(());
        }
        let mut others: Vec<_> = others.iter().map(ToString::to_string).collect();
        others.sort();
        Err(Error::fatal(format!(
            "nothing was changed, as the topics have another layout than log.lanes, log.order_partitions and \
             log.webhook_partitions give: {}",
            others.join(", ")
        )))
    }

    fn make(&self, topics: &[Topic]) -> Result<Vec<String>, Error> {
        if topics.is_empty() {
            return Ok(Vec::new());
        }
        let settings: Vec<_> = topics.iter().map(|t| wanted(*t, self.replication)).collect();
        let mut requests = Vec::new();
        let mut changes = Vec::new();
        for (topic, settings) in topics.iter().zip(&settings) {
            let name = &self.names.topic(*topic)?.full;
            let partitions = self.partitions(*topic);
            let count = i32::try_from(partitions).unwrap_or(i32::MAX);
            let replication = TopicReplication::Fixed(i32::from(self.replication));
            let request = NewTopic::new(name, count, replication);
            requests.push(settings.iter().fold(request, |r, (key, value)| r.set(key, value)));
            let ending = if partitions == 1 { "" } else { "s" };
            changes.push(format!("created {name} with {partitions} partition{ending}"));
        }
        let results = self.ask(self.client.create_topics(&requests, &options()))?;
        // Another process may have created a topic; the next run checks its settings.
        self.check(results, Some(RDKafkaErrorCode::TopicAlreadyExists))?;
        self.await_partitions(topics)?;
        Ok(changes)
    }

    fn partitions(&self, topic: Topic) -> u32 {
        topic.partitions_for(self.chains, self.layout)
    }

    /// Adds the partitions of chains newer than the topics.
    fn grow(&self, topics: &[Topic], found: &HashMap<Topic, Found>) -> Result<Vec<String>, Error> {
        let (mut grown, mut changes, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        for topic in topics {
            let Some(from) = found.get(topic).map(|found| found.partitions) else { continue };
            if lacks_chains(*topic, self.layout, from, chains(found)) {
                let (name, partitions) = (&self.names.topic(*topic)?.full, self.partitions(*topic));
                counts.push((name, usize::try_from(partitions).unwrap_or(usize::MAX)));
                let line = format!("added partitions to {name}: {partitions} instead of {from}");
                changes.push(line);
                grown.push(*topic);
            }
        }
        if grown.is_empty() {
            return Ok(changes);
        }
        let requests = counts.iter().map(|(name, count)| NewPartitions::new(name, *count));
        let requests: Vec<_> = requests.collect();
        self.check(self.ask(self.client.create_partitions(&requests, &options()))?, None)?;
        self.await_partitions(&grown)?;
        Ok(changes)
    }

    /// Waits until the brokers have leaders for all partitions of these topics.
    fn await_partitions(&self, topics: &[Topic]) -> Result<(), Error> {
        await_shown("the new partitions", || {
            let metadata = self.client.inner().fetch_metadata(None, REQUEST_TIMEOUT);
            let metadata = metadata.map_err(|error| self.explain(error))?;
            let has_leaders = |topic: &&MetadataTopic| {
                topic.error().is_none() && topic.partitions().iter().all(|p| p.leader() >= 0)
            };
            let ready = metadata.topics().iter().filter(has_leaders);
            let ready: HashSet<_> = ready.map(|t| (t.name(), t.partitions().len())).collect();
            let is_ready = |topic: &Topic| {
                let count = usize::try_from(self.partitions(*topic)).unwrap_or(usize::MAX);
                let name = self.names.topic(*topic);
                name.is_ok_and(|name| ready.contains(&(name.full.as_str(), count)))
            };
            Ok(topics.iter().all(is_ready))
        })
    }

    /// Sets the `own` settings of a topic, overridden by `changes`. The library's only request
    /// resets settings that it omits, so all are sent.
    fn alter(
        &self,
        topic: Topic,
        mut own: HashMap<String, String>,
        changes: &[Setting],
    ) -> Result<(), Error> {
        own.extend(changes.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
        let name = &self.names.topic(topic)?.full;
        let request = AlterConfig::new(ResourceSpecifier::Topic(name));
        let request = own.iter().fold(request, |request, (key, value)| request.set(key, value));
        let results = self.ask(self.client.alter_configs([&request], &options()))?;
        for result in results {
            result.map_err(|(_, code)| self.explain(format!("{name}: {code}")))?;
        }
        await_shown(&format!("the new settings of {name}"), || {
            let found = self.found(&[topic])?;
            let actual = |key| found.get(&topic)?.settings.get(key).map(String::as_str);
            Ok(changes.iter().all(|(key, value)| suffices(key, actual(*key), value)))
        })
    }

    /// Returns which of these topics the brokers have.
    fn found(&self, topics: &[Topic]) -> Result<HashMap<Topic, Found>, Error> {
        let metadata = self.client.inner().fetch_metadata(None, REQUEST_TIMEOUT);
        let metadata = metadata.map_err(|error| self.explain(error))?;
        let mut found = HashMap::new();
        for topic in metadata.topics() {
            let Some(of) = self.names.parse(topic.name(), 0) else { continue };
            if !topics.contains(&of.topic) {
                continue;
            }
            let replicas = topic.partitions().iter().map(|p| p.replicas().len()).min();
            let partitions = topic.partitions().len();
            let replicas = replicas.unwrap_or_default();
            found.insert(of.topic, Found { partitions, replicas, ..Found::default() });
        }
        let present: Vec<Topic> = found.keys().copied().collect();
        let mut resources = Vec::new();
        for topic in &present {
            resources.push(ResourceSpecifier::Topic(&self.names.topic(*topic)?.full));
        }
        if resources.is_empty() {
            return Ok(found);
        }
        let described = self.ask(self.client.describe_configs(&resources, &options()))?;
        // Responses have the order of the requests.
        for (topic, result) in present.iter().zip(described) {
            let resource = result.map_err(|code| self.explain(format!("{topic}: {code}")))?;
            let Some(found) = found.get_mut(topic) else { continue };
            for entry in resource.entries {
                let Some(value) = entry.value else { continue };
                if entry.source == ConfigSource::DynamicTopic {
                    found.own.insert(entry.name.clone(), value.clone());
                }
                found.settings.insert(entry.name, value);
            }
        }
        Ok(found)
    }
}

/// Waits until the brokers show a requested change, which reaches them some time after the reply.
fn await_shown(what: &str, mut is_shown: impl FnMut() -> Result<bool, Error>) -> Result<(), Error> {
    let started = Instant::now();
    while started.elapsed() < REQUEST_TIMEOUT {
        if is_shown()? {
            return Ok(());
        }
        std::thread::park_timeout(CHANGE_POLL_INTERVAL);
    }
    Err(Error::transient(format!("the brokers do not have {what} yet")))
}
