//! Runs tasks as sandboxed WebAssembly components: [`Guests`] implemented with wasmtime.
//!
//! ```text
//! bytes -> contract -> compile, cache or embedded -> type-check -> describe -> manifest -> loaded
//!
//! call -> permit -> guests' own threads -> fresh instance -> answer -> checked against the
//!                                             |              contract, grants and limits
//!                                             +- trap -> named, bisected
//! ```
//! This module decides what a guest may do and how its failure is classified. It does not decide
//! what happens to a failed item or whether a proposal is applied.
//!
//! Guests run on dedicated threads, those of heavy tasks and those that compute for long on threads
//! of low priority (`threads`), so that a guest in an endless loop never delays the caller, and no
//! guest delays the others' due items. The caller only waits for the result; dropping the future
//! ends the guest.

mod access;
mod bindings;
mod bisect;
mod bounds;
pub mod built_in;
mod cache;
mod call;
mod capture;
mod code;
mod columns;
mod contract;
mod convert;
mod engine;
mod fault;
#[cfg(test)]
mod fuzz;
mod guest;
mod imports;
mod items;
mod lines;
mod manifest;
mod memory;
mod page;
mod plugin;
mod readset;
mod shape;
mod signature;
mod threads;
mod ticker;
mod verdict;
mod wasi;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use besom_core::ids::{TaskName, Tenant};
use besom_core::item::Item;
use besom_core::proposal::Verdict;
use besom_core::time::Time;
use besom_core::weight;
use tokio::sync::Semaphore;
use wasmtime::Engine;
use wasmtime::component::Linker;

use self::access::Access;
use self::bindings::TaskPre;
use self::bindings::besom::task::types as wit;
use self::bisect::Bisection;
use self::cache::Cache;
use self::call::{Answer, Caller, Outcome, Question};
use self::guest::{Guest, Scope, View};
use self::items::Items;
use self::plugin::{Plugin, Source, Workshop};
use self::threads::Threads;
use self::ticker::Ticker;
use self::verdict::Court;
use crate::built_in::BuiltIn;
use besom_ports::activity::Activity;
use besom_ports::guests::{
    Acted, Call, Error, Fault, Guests, Lane, Manifest, Page, StopFlag, Usage,
};
use besom_ports::lines::RunLog;
use besom_ports::store::ReadView;

pub use self::contract::{CONTRACT, Mismatch, Version};
pub use self::engine::{Metering, Settings};
pub use self::lines::LOOKING_UP;
pub use self::plugin::{COMPILING, LoadError, Loaded, closed, digest, trusted};
pub use self::shape::Shape;
pub use self::signature::{Signing, TrustedKey, Unvouched};

/// The loaded plugins and everything needed to call them. Clones share one runtime.
#[derive(Clone)]
pub struct Runtime(Arc<Inner>);

struct Inner {
    settings: Settings,
    /// By metering.
    compilers: [Compiler; 2],
    ticker: Arc<Ticker>,
    /// Acquired before an instance, because an exhausted pool returns an error while a semaphore
    /// queues.
    permits: Arc<Semaphore>,
    plugins: RwLock<HashMap<String, Arc<Plugin>>>,
    threads: Threads,
}

/// Compiles components for one kind of metering.
struct Compiler {
    engine: Engine,
    linker: Linker<Guest>,
    cache: Option<Cache>,
}

impl Compiler {
    fn start(settings: &Settings, metering: Metering) -> wasmtime::Result<Compiler> {
        let engine = engine::engine(settings, metering)?;
        let linker = engine::linker(&engine)?;
        let cache = Cache::of(settings, &engine);
        Ok(Compiler { engine, linker, cache })
    }
}

impl Runtime {
    /// Starts the guests' threads. No plugin is loaded yet.
    ///
    /// # Errors
    /// Wasmtime or the threads cannot be started.
    pub fn start(settings: Settings) -> anyhow::Result<Runtime> {
        let start = |error: wasmtime::Error| anyhow::anyhow!("cannot start wasmtime: {error:#}");
        let [fuel, time] = Metering::ALL;
        let compilers = [
            Compiler::start(&settings, fuel).map_err(start)?,
            Compiler::start(&settings, time).map_err(start)?,
        ];
        let engines = compilers.each_ref().map(|compiler| &compiler.engine);
        Ok(Runtime(Arc::new(Inner {
            ticker: Arc::new(Ticker::start(engines, settings.tick)?),
            permits: Arc::new(Semaphore::new(settings.instances_max as usize)),
            plugins: RwLock::default(),
            threads: Threads::start(settings.threads, settings.slice)?,
            compilers,
            settings,
        })))
    }

    /// Loads a plugin from a file if its digest is admitted and its signature right. Otherwise nothing of it is
    /// compiled or run.
    pub async fn load_signed(
        &self,
        path: impl Into<PathBuf>,
        signing: Signing,
        admits: impl FnOnce(&str) -> bool + Send + 'static,
    ) -> Result<Loaded, LoadError> {
        let (path, bytes_max) = (path.into(), self.0.settings.component_bytes_max);
        let called = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let read = path.clone();
        let bytes = self.blocking(move |_| plugin::read(&read, bytes_max)).await?;
        let source = Source::Bytes(Arc::new(bytes));
        let admits = move |source: &Source, digest: &str| {
            if !admits(digest) {
                return Err(LoadError::Refused { digest: digest.to_owned() });
            }
            Ok(signing.check(&path, source.bytes())?)
        };
        self.load_called(called.unwrap_or_default(), source, Metering::Fuel, admits).await
    }

    /// Loads a built-in plugin. It is compiled only if the embedded code does not fit this machine
    /// or the metering.
    pub async fn load_built_in(
        &self,
        built_in: &'static BuiltIn,
        metering: Metering,
    ) -> Result<Loaded, LoadError> {
        let (called, source) = (built_in.name.to_owned(), Source::BuiltIn(built_in));
        self.load_called(called, source, metering, |_, _| Ok(())).await
    }

    /// Loads a plugin whose tasks are presumably metered by fuel; see [`Runtime::load_metered`].
    pub async fn load(
        &self,
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
    ) -> Result<Loaded, LoadError> {
        self.load_metered(bytes, Metering::Fuel).await
    }

    /// Loads a plugin: checks the contract, compiles on another thread (or uses the cache), checks
    /// the types, and calls `describe` under limits. Loading the same bytes again returns the same
    /// plugin; other versions remain callable. For a task with another metering, the plugin is
    /// compiled again at its first call.
    pub async fn load_metered(
        &self,
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
        metering: Metering,
    ) -> Result<Loaded, LoadError> {
        let source = Source::Bytes(Arc::new(bytes));
        self.load_called("of these bytes".to_owned(), source, metering, |_, _| Ok(())).await
    }

    async fn load_called(
        &self,
        called: String,
        source: Source,
        metering: Metering,
        admits: impl FnOnce(&Source, &str) -> Result<(), LoadError> + Send + 'static,
    ) -> Result<Loaded, LoadError> {
        let (digest, compiled) = self
            .blocking(move |inner| {
                let digest = source.digest();
                admits(&source, &digest)?;
                if inner.plugin(&digest).is_some() {
                    return Ok((digest, None));
                }
                let workshop = inner.workshop(metering);
                let pre = plugin::prepare(&workshop, &called, &digest, &source)?;
                Ok((digest, Some((source, pre))))
            })
            .await?;
        if let Some((source, pre)) = compiled {
            let plugin = self.describe(source, metering, pre).await?;
            let mut plugins = self.0.plugins.write().unwrap_or_else(PoisonError::into_inner);
            plugins.entry(digest.clone()).or_insert(plugin);
        }
        let plugin = self
            .0
            .plugin(&digest)
            .ok_or_else(|| LoadError::Describe(Error::NotLoaded(digest.clone())))?;
        Ok(Loaded { digest, manifest: Arc::clone(&plugin.manifest) })
    }

    /// Unloads a plugin. Running calls keep it until they end.
    pub fn unload(&self, digest: &str) {
        self.0.plugins.write().unwrap_or_else(PoisonError::into_inner).remove(digest);
    }

    /// Returns a loaded plugin.
    pub fn find(&self, digest: &str) -> Option<Loaded> {
        let plugin = self.0.plugin(digest)?;
        Some(Loaded { digest: digest.to_owned(), manifest: Arc::clone(&plugin.manifest) })
    }

    /// What a loaded plugin imports: the functions of the contract as `store.get-many`, and other interfaces.
    /// Empty: no plugin with this digest is loaded.
    pub fn imports(&self, digest: &str) -> BTreeSet<String> {
        let plugin = self.0.plugin(digest);
        let compiled = plugin.iter().flat_map(|plugin| &plugin.compiled).find_map(|pre| pre.get());
        compiled.map(plugin::imports).unwrap_or_default()
    }

    /// The manifest and the imports of a plugin that this node has compiled before, even if its file is gone;
    /// `None`: it has not, or another version of it has.
    pub async fn recall(&self, digest: &str) -> Option<(Arc<Manifest>, BTreeSet<String>)> {
        let (digest, metering) = (digest.to_owned(), Metering::Fuel);
        let recall = move |inner: &Inner| Ok(plugin::recall(&inner.workshop(metering), &digest));
        let pre = self.blocking(recall).await.ok().flatten()?;
        let imports = plugin::imports(&pre);
        // Nothing of it is compiled again.
        let source = Source::Bytes(Arc::new(Vec::new()));
        let plugin = self.describe(source, metering, pre).await.ok()?;
        Some((Arc::clone(&plugin.manifest), imports))
    }

    /// The digests of the loaded plugins.
    pub fn loaded(&self) -> Vec<String> {
        let plugins = self.0.plugins.read().unwrap_or_else(PoisonError::into_inner);
        let mut digests: Vec<String> = plugins.keys().cloned().collect();
        digests.sort_unstable();
        digests
    }

    /// How long guests have run without interruption, if that is too long: the ticker thread does
    /// not get enough processor time. `None`: no problem.
    pub fn stalled(&self) -> Option<Duration> {
        self.0.ticker.stalled()
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, LoadError> + Send + 'static,
    ) -> Result<T, LoadError> {
        let inner = Arc::clone(&self.0);
        let done = self.0.threads.low().spawn_blocking(move || work(&inner)).await;
        done.unwrap_or_else(|error| {
            let words = format!("the compiler: {error}");
            Err(if error.is_panic() {
                LoadError::Compile(words)
            } else {
                LoadError::Process(words)
            })
        })
    }

    /// Calls `describe` under its limits.
    async fn describe(
        &self,
        source: Source,
        metering: Metering,
        pre: TaskPre<Guest>,
    ) -> Result<Arc<Plugin>, LoadError> {
        let unknown = Arc::new(Manifest {
            name: String::new(),
            version: String::new(),
            doc: String::new(),
            settings: vec![],
            collections: vec![],
            topics: vec![],
            activity: false,
            per_tenant: false,
            lane: Lane::Normal,
            extra: vec![],
        });
        let plugin = Plugin::new(Arc::clone(&unknown), source.clone(), metering, pre.clone());
        let caller = Caller {
            plugin: Arc::new(plugin),
            pre: pre.clone(),
            metering,
            task: TaskName::from("describe"),
            access: Arc::new(Access {
                grants: Arc::default(),
                aliases: Arc::default(),
                columns: Arc::default(),
                activity: false,
                manifest: unknown,
                topics: vec![],
            }),
            limits: self.0.settings.describe.clone(),
            host_calls_max: self.0.settings.host_calls_max,
            compiler: self.0.settings.compiler.clone(),
            now: Time::EPOCH,
            seed: 0,
            view: None,
            stop: StopFlag::default(),
            log: RunLog::default(),
        };
        let described = self
            .run("describe", caller, |caller| async move {
                let outcome = caller.ask(Scope::Nothing, Question::Describe).await;
                match outcome.answer? {
                    Answer::Manifest(manifest) => Ok(manifest),
                    answer => Err(unexpected(&answer)),
                }
            })
            .await
            .map_err(LoadError::Describe)?;
        let manifest = convert::manifest(described)
            .map_err(|e| LoadError::Manifest(vec![bounds::cut(e, bounds::MESSAGE_BYTES_MAX)]))?;
        match manifest::faults(&manifest) {
            faults if faults.is_empty() => {
                Ok(Arc::new(Plugin::new(manifest.into(), source, metering, pre)))
            }
            faults => Err(LoadError::Manifest(faults)),
        }
    }

    /// Runs a call on the guests' threads, as soon as an instance is available.
    async fn run<T, F>(
        &self,
        export: &'static str,
        caller: Caller,
        work: impl FnOnce(Caller) -> F + Send,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let stop = caller.stop.clone();
        let permit = tokio::select! {
            biased;
            reason = stop.raised() => return Err(Error::Stopped(reason.to_owned())),
            permit = Arc::clone(&self.0.permits).acquire_owned() => {
                permit.map_err(|_| Error::Stopped("the runtime has ended".into()))?
            }
        };
        let running = self.0.ticker.enter();
        let task = caller.task.clone();
        let is_heavy = caller.plugin.manifest.lane.row().long;
        let work = work(caller);
        let call = async move {
            let result = work.await;
            drop((running, permit));
            result
        };
        let ended = self.0.threads.run((task, export), is_heavy, call).await;
        match ended {
            Ok(result) => result,
            Err(error) => Err(match error.try_into_panic() {
                Ok(panic) => Error::Guest(fault::panicked("the call", &*panic)),
                Err(error) => Error::Infrastructure(format!("the call of a guest: {error}")),
            }),
        }
    }

    /// The compiled code of the plugin for that metering.
    async fn code(
        &self,
        plugin: &Arc<Plugin>,
        digest: &str,
        metering: Metering,
    ) -> Result<TaskPre<Guest>, Error> {
        let compile = || {
            let (source, digest) = (plugin.source.clone(), digest.to_owned());
            let called = plugin.manifest.name.clone();
            self.blocking(move |inner| {
                plugin::prepare(&inner.workshop(metering), &called, &digest, &source)
            })
        };
        let compiled = plugin.compiled[metering as usize].get_or_try_init(compile).await;
        compiled.cloned().map_err(|error| Error::Infrastructure(error.to_string()))
    }

    async fn caller(
        &self,
        call: &Call,
        snapshot: Arc<dyn ReadView>,
        activity: Arc<dyn Activity>,
    ) -> Result<Caller, Error> {
        let plugin = self.0.plugin(&call.digest);
        let plugin = plugin.ok_or_else(|| Error::NotLoaded(call.digest.clone()))?;
        let metering = Metering::of(&call.limits);
        let pre = tokio::select! {
            biased;
            reason = call.stop.raised() => return Err(Error::Stopped(reason.to_owned())),
            pre = self.code(&plugin, &call.digest, metering) => pre?,
        };
        Ok(Caller {
            pre,
            metering,
            task: call.task.clone(),
            access: Arc::new(Access {
                grants: Arc::clone(&call.grants),
                aliases: Arc::clone(&call.aliases),
                columns: Arc::clone(&call.columns),
                activity: call.activity,
                manifest: Arc::clone(&plugin.manifest),
                topics: call.topics.clone(),
            }),
            limits: call.limits.clone(),
            host_calls_max: self.0.settings.host_calls_max,
            compiler: self.0.settings.compiler.clone(),
            now: call.now,
            seed: call.seed,
            view: Some(View { snapshot, activity }),
            stop: call.stop.clone(),
            log: call.log.clone(),
            plugin,
        })
    }
}

impl Inner {
    fn plugin(&self, digest: &str) -> Option<Arc<Plugin>> {
        let plugins = self.plugins.read().unwrap_or_else(PoisonError::into_inner);
        plugins.get(digest).cloned()
    }

    fn workshop(&self, metering: Metering) -> Workshop<'_> {
        let Compiler { engine, linker, cache } = &self.compilers[metering as usize];
        let wait_max = self.settings.compile_wait_max;
        let (shape, compiler) = (&self.settings.shape, self.settings.compiler.as_ref());
        Workshop { engine, metering, linker, cache: cache.as_ref(), wait_max, shape, compiler }
    }
}

fn context(call: &Call, tenant: Option<&Tenant>) -> wit::Context {
    wit::Context {
        task: call.task.as_str().to_owned(),
        now: call.now.micros(),
        seed: call.seed,
        settings: convert::fields_to_wit(&call.settings),
        tenant: tenant.map(|tenant| tenant.as_str().to_owned()),
        horizon: u64::try_from(call.horizon.as_millis()).unwrap_or(u64::MAX),
        unmapped: call.unmapped.iter().map(convert::column_name_to_wit).collect(),
        described: call.described.iter().map(convert::described_to_wit).collect(),
        extra: Vec::new(),
    }
}

fn unexpected(answer: &Answer) -> Error {
    let (cause, message) = match answer {
        Answer::Error(error) => ("error", error_text(error)),
        // The bindings pair each export with its result type.
        _ => ("contract", "returned the answer of another function".to_owned()),
    };
    Error::Guest(Fault::new(cause, message))
}

fn error_text(error: &wit::Error) -> String {
    let again = if error.retryable { " (retryable)" } else { "" };
    let text = format!("the plugin reports `{}`: {}{again}", error.code, error.message);
    bounds::cut(text, bounds::MESSAGE_BYTES_MAX)
}

#[async_trait]
impl Guests for Runtime {
    fn manifest(&self, digest: &str) -> Option<Arc<Manifest>> {
        self.0.plugin(digest).map(|plugin| Arc::clone(&plugin.manifest))
    }

    async fn tenants(
        &self,
        call: &Call,
        view: Arc<dyn ReadView>,
        activity: Arc<dyn Activity>,
        after: Option<&Tenant>,
        limit: u32,
    ) -> Result<Vec<Tenant>, Error> {
        let caller = self.caller(call, view, activity).await?;
        let context = context(call, None);
        let after = after.cloned();
        let scope = match call.all_tenants {
            true => Scope::Scan(None),
            false => Scope::Tenants(HashSet::new()),
        };
        self.run("tenants", caller, move |caller| async move {
            let after = after.as_ref().map(Tenant::as_str);
            let question = Question::Tenants { context: &context, after, limit };
            let outcome = caller.ask(scope, question).await;
            let names = match outcome.answer? {
                Answer::Tenants(names) => names,
                answer => return Err(unexpected(&answer)),
            };
            let given = match &outcome.guest.scope {
                Scope::Tenants(given) => Some(given),
                Scope::Scan(_) | Scope::Items(_) | Scope::Nothing => None,
            };
            page::tenants(names, limit, given).map_err(|(cause, message)| {
                Error::Guest(fault::returned(cause, message, &outcome.guest))
            })
        })
        .await
    }

    async fn scan(
        &self,
        call: &Call,
        view: Arc<dyn ReadView>,
        activity: Arc<dyn Activity>,
        tenant: Option<&Tenant>,
        cursor: Option<&[u8]>,
        limit: u32,
    ) -> Result<Page, Error> {
        let caller = self.caller(call, view, activity).await?;
        let context = context(call, tenant);
        let (tenant, cursor) = (tenant.cloned(), cursor.map(<[u8]>::to_vec));
        self.run("scan", caller, move |caller| async move {
            let question = Question::Scan { context: &context, cursor: cursor.as_deref(), limit };
            let Outcome { answer, guest, usage } =
                caller.ask(Scope::Scan(tenant.clone()), question).await;
            let found = match answer? {
                Answer::Page(page) => page,
                answer => return Err(unexpected(&answer)),
            };
            // The count reported by the plugin is limited to what is possible.
            let scanned = found.scanned.min(caller.limits.rows_read);
            let (candidates, next, left_out) = page::candidates(found, tenant.as_ref(), limit)
                .map_err(|(cause, message)| {
                    Error::Guest(fault::returned(cause, message, &guest))
                })?;
            Ok(Page { candidates, next, scanned, left_out, usage })
        })
        .await
    }

    async fn act(
        &self,
        call: &Call,
        view: Arc<dyn ReadView>,
        activity: Arc<dyn Activity>,
        items: &[Item],
    ) -> Result<Acted, Error> {
        if items.is_empty() {
            return Ok(Acted { verdicts: Vec::new(), usage: Usage::default() });
        }
        let caller = self.caller(call, view, activity).await?;
        let batch = Batch {
            context: context(call, None),
            tenants: items.iter().map(|item| item.identity.tenant.clone()).collect(),
            items: Items::of(items),
            apart: !call.all_tenants,
        };
        let settings = &self.0.settings;
        let wall = Duration::from_millis(call.limits.wall_ms);
        let bounds = Bounds {
            time: wall.saturating_mul(settings.bisect_walls_max),
            spent: None,
            bytes: settings.verdict_bytes_max,
            held: 0,
        };
        self.run("act", caller, move |caller| async move { batch.act(&caller, bounds).await }).await
    }
}

/// What the calls of one batch may use together.
struct Bounds {
    /// The time available for bisecting: all calls for one tenant from its first fault on, including
    /// that one. Successful calls do not count, regardless of the number of tenants.
    time: Duration,
    /// `None`: no fault so far.
    spent: Option<Duration>,
    /// See [`Settings::verdict_bytes_max`].
    bytes: usize,
    /// The weight of the verdicts so far.
    held: usize,
}

impl Bounds {
    fn count(&mut self, took: Duration) {
        self.spent = Some(self.spent.unwrap_or_default().saturating_add(took));
    }

    fn hold(&mut self, verdicts: &[Result<Verdict, Fault>]) {
        self.held += verdicts
            .iter()
            .map(|verdict| match verdict {
                Ok(Verdict::Propose(proposal)) => weight::of_proposal(proposal),
                Ok(_) | Err(_) => 0,
            })
            .sum::<usize>();
    }

    /// Why no other call is made.
    fn end(&self) -> Option<Fault> {
        match self.spent {
            _ if self.held >= self.bytes => Some(Fault::no_room()),
            Some(spent) if spent >= self.time => Some(Fault::not_reached()),
            Some(_) | None => None,
        }
    }
}

/// The items of one `act`, as the guest receives them.
struct Batch {
    context: wit::Context,
    tenants: Vec<Option<Tenant>>,
    items: Items,
    /// Whether each call may contain items of one tenant only.
    apart: bool,
}

impl Batch {
    /// Produces a verdict or a fault for each item, in one call or in one call per tenant.
    async fn act(&self, caller: &Caller, mut bounds: Bounds) -> Result<Acted, Error> {
        let first = self.tenants.first();
        if !self.apart || self.tenants.iter().all(|tenant| Some(tenant) == first) {
            return self.act_together(caller, &mut bounds).await;
        }
        let mut by_tenant: BTreeMap<Option<&Tenant>, Vec<usize>> = BTreeMap::new();
        for (at, tenant) in self.tenants.iter().enumerate() {
            by_tenant.entry(tenant.as_ref()).or_default().push(at);
        }
        let mut verdicts = vec![Err(Fault::not_reached()); self.items.len()];
        let mut usage = Usage::default();
        let mut any = false;
        for (tenant, places) in by_tenant {
            let of_tenant = Batch {
                context: self.context.clone(),
                tenants: vec![tenant.cloned(); places.len()],
                items: self.items.some(&places),
                apart: false,
            };
            let acted = match of_tenant.act_together(caller, &mut bounds).await {
                Ok(acted) => acted,
                // The results for other tenants remain valid; the rest is tried again. If the call
                // was stopped, no result is needed.
                Err(error) if any && !matches!(error, Error::Stopped(_)) => {
                    tracing::warn!(task = %caller.task, %error, "a batch ends before its last tenant");
                    break;
                }
                Err(error) => return Err(error),
            };
            call::add(&mut usage, &acted.usage);
            let is_reached = |v: &Result<_, Fault>| !v.as_ref().is_err_and(Fault::is_not_reached);
            any |= acted.verdicts.iter().any(is_reached);
            for (at, verdict) in places.into_iter().zip(acted.verdicts) {
                verdicts[at] = verdict;
            }
        }
        Ok(Acted { verdicts, usage })
    }

    async fn act_together(&self, caller: &Caller, bounds: &mut Bounds) -> Result<Acted, Error> {
        let mut usage = Usage::default();
        let mut bisection = Bisection::new(self.items.len());
        let mut is_faulty = false;
        while bounds.end().is_none()
            && let Some(range) = bisection.next()
        {
            let started = Instant::now();
            let result = self.attempt(caller, range.clone(), &mut usage).await;
            is_faulty |= matches!(result, Err(Error::Guest(_)));
            if is_faulty {
                bounds.count(started.elapsed());
            }
            match result {
                Ok(results) => {
                    bounds.hold(&results);
                    bisection.passed(range, results);
                }
                Err(Error::Guest(fault)) => bisection.failed(range, fault),
                // The guest is not at fault: there is no item to find.
                Err(error) => return Err(error),
            }
        }
        let left = bounds.end().unwrap_or_else(Fault::not_reached);
        Ok(Acted { verdicts: bisection.end(&left), usage })
    }

    /// Executes some of the items in one call.
    async fn attempt(
        &self,
        caller: &Caller,
        range: std::ops::Range<usize>,
        usage: &mut Usage,
    ) -> Result<Vec<Result<Verdict, Fault>>, Error> {
        let (items, tenants) = (self.items.lend(range.clone()), &self.tenants[range]);
        let question = Question::Act { context: &self.context, items: &items };
        let outcome = caller.ask(Scope::Items(tenants.into()), question).await;
        call::add(usage, &outcome.usage);
        let verdicts = match outcome.answer? {
            Answer::Verdicts(verdicts) if verdicts.len() == items.len() => verdicts,
            Answer::Verdicts(verdicts) => {
                let message = format!("act: {} verdicts on {} items", verdicts.len(), items.len());
                return Err(Error::Guest(fault::returned("contract", message, &outcome.guest)));
            }
            Answer::Error(error) if error.retryable => {
                let reason = error_text(&error);
                let retry = Verdict::Retry { after_ms: 0, reason };
                return Ok(items.iter().map(|_| Ok(retry.clone())).collect());
            }
            Answer::Error(error) => {
                let fault = fault::returned("error", error_text(&error), &outcome.guest);
                let refused = access::is_refusal(&error.code).then_some(error.message);
                return Err(Error::Guest(Fault { refused, ..fault }));
            }
            answer => return Err(unexpected(&answer)),
        };
        let sets = &outcome.guest.sets;
        let court = Court { access: &caller.access, limits: &caller.limits, sets };
        Ok(tenants.iter().zip(verdicts).map(|(t, v)| court.hear(t.as_ref(), v)).collect())
    }
}
