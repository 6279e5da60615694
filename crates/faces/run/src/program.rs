//! A program that was checked: what is started, and how it is wired.

use crate::listen::Address;
use crate::machine::Rules;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;
use tranship::component::{Brief, End, Part, Returns, WhenDown};
use tranship::sandbox::Confined;

/// A program that was checked.
#[derive(Debug)]
pub struct Program {
    /// Name of the program.
    pub name: String,
    /// Folder of its file: paths begin there, and components run there.
    pub folder: PathBuf,
    /// Configuration of its manager, as text.
    pub manager: String,
    /// The components, by name.
    pub components: Vec<Component>,
    /// Channels, topics, queues and services.
    pub wires: Vec<Wire>,
}

/// A component.
#[derive(Debug)]
pub struct Component {
    /// Name.
    pub name: String,
    /// Program and arguments; the program is an absolute path.
    pub run: Vec<String>,
    /// The environment of the component, beside the usual variables.
    pub env: BTreeMap<String, String>,
    /// Variables of the supervisor's environment that it gets, too.
    pub inherit: Vec<String>,
    /// Number of processes.
    pub replicas: u32,
    /// The component's ends, by the names that it uses: number of the wire, and what it does there.
    pub ends: BTreeMap<String, (usize, Part)>,
    /// For a program that knows nothing of channels.
    pub filter: Option<Filter>,
    /// Addresses at which the supervisor listens for it, and devices that it opens.
    pub listen: Vec<Address>,
    /// Rules of starting and stopping. Other components are numbers in `after` and `receivers`.
    pub rules: Rules,
    /// Rights of its processes.
    pub rights: Rights,
    /// Whether it locks itself down when it is ready.
    pub locks: bool,
    /// Line of the file.
    pub line: usize,
}

/// The ends of a program that reads standard input and writes standard output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Filter {
    /// End whose messages are its standard input.
    pub stdin: Option<String>,
    /// End that its standard output goes to.
    pub stdout: Option<String>,
    /// Most bytes of a message of its output.
    pub frame: usize,
}

/// Rights of a process, as they are passed to its launcher.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Rights {
    /// Paths that may be read.
    pub read: Vec<PathBuf>,
    /// Paths that may be written.
    pub write: Vec<PathBuf>,
    /// All files.
    pub any_file: bool,
    /// The machine's network.
    pub network: bool,
    /// The machine's processes.
    pub any_process: bool,
    /// All system calls.
    pub any_call: bool,
    /// User.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Most bytes of private memory.
    pub memory: Option<u64>,
    /// Most descriptors.
    pub descriptors: Option<u64>,
    /// Most processes of its user.
    pub processes: Option<u64>,
    /// Most bytes of a file.
    pub file_bytes: Option<u64>,
    /// Most seconds of processor time.
    pub cpu_seconds: Option<u64>,
}

impl Rights {
    /// Returns the sandbox.
    #[must_use]
    pub fn confined(self) -> Confined {
        Confined {
            read: self.read,
            write: self.write,
            any_file: self.any_file,
            network: self.network,
            any_process: self.any_process,
            any_call: self.any_call,
            uid: self.uid,
            gid: self.gid,
            memory: self.memory,
            descriptors: self.descriptors,
            processes: self.processes,
            file_bytes: self.file_bytes,
            cpu_seconds: self.cpu_seconds,
        }
    }
}

/// The kind of a wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A channel.
    Channel,
    /// A topic.
    Topic,
    /// A queue.
    Queue,
    /// A service; requests go from the callers to the server.
    Service,
}

impl Kind {
    /// Returns the word of the file.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kind::Channel => "channel",
            Kind::Topic => "topic",
            Kind::Queue => "queue",
            Kind::Service => "service",
        }
    }

    pub(crate) fn parts(self) -> [Part; 2] {
        match self {
            Kind::Channel => [Part::Send, Part::Receive],
            Kind::Topic => [Part::Publish, Part::Subscribe],
            Kind::Queue => [Part::Produce, Part::Consume],
            Kind::Service => [Part::Call, Part::Serve],
        }
    }
}

/// A channel, topic, queue or service.
#[derive(Debug)]
pub struct Wire {
    /// Kind.
    pub kind: Kind,
    /// Name.
    pub name: String,
    /// Components that send.
    pub from: Vec<usize>,
    /// Components that receive.
    pub to: Vec<usize>,
    /// Number of channels that it is, each between one pair of processes.
    pub copies: u32,
    /// Largest size of its pool, in bytes.
    pub pool: Option<u64>,
    /// Trust level of its pool.
    pub trust: Option<String>,
    /// Messages that may be under way.
    pub depth: Option<u32>,
    /// The action of a sender while there is no receiver.
    pub when_down: WhenDown,
    /// Whether a full channel drops new messages.
    pub drops: bool,
    /// Line of the file.
    pub line: usize,
}

impl Wire {
    /// Returns the name of a copy.
    #[must_use]
    pub fn name_of(&self, copy: u32) -> String {
        copy_name(&self.name, self.copies, copy)
    }

    /// Returns the names of all copies.
    pub fn names(&self) -> impl Iterator<Item = String> {
        (0..self.copies).map(|copy| self.name_of(copy))
    }
}

fn copy_name(name: &str, copies: u32, copy: u32) -> String {
    match copies {
        1 => name.to_owned(),
        _ => format!("{name}.{copy}"),
    }
}

impl Component {
    /// Returns the copies of a wire at which one of its processes is.
    pub(crate) fn copies_at(&self, wire: &Wire, replica: u32) -> Range<u32> {
        match (wire.copies, self.replicas) {
            (1, _) | (_, 1) => 0..wire.copies,
            _ => replica..replica + 1,
        }
    }
}

impl Program {
    /// Returns what a process of a component is told.
    #[must_use]
    pub fn brief(&self, component: &Component, replica: u32) -> Brief {
        let ends = component.ends.iter().flat_map(|(name, (wire, part))| {
            let wire = &self.wires[*wire];
            let copies = component.copies_at(wire, replica);
            // Of several copies that it has, each has a name of its own; the one copy of a replica has the file's.
            let several = u32::try_from(copies.len()).unwrap_or(u32::MAX);
            copies.map(move |copy| {
                let end = self.end(wire, *part, copy);
                (copy_name(name, several, copy), end)
            })
        });
        Brief {
            name: component.name.clone(),
            replica,
            locks: component.locks,
            ends: ends.collect(),
        }
    }

    fn end(&self, wire: &Wire, part: Part, copy: u32) -> End {
        let others = match wire.kind.parts()[0] == part {
            true => &wire.to,
            false => &wire.from,
        };
        // If several components are at the other end, it is enough that one of them comes again.
        let rank = |returns: Returns| match returns {
            Returns::Never => 0,
            Returns::OnFailure => 1,
            Returns::Always => 2,
        };
        let returns = others.iter().map(|at| self.components[*at].rules.restart);
        End {
            part,
            name: wire.name_of(copy),
            pool: wire.pool,
            trust: wire.trust.clone(),
            depth: wire.depth,
            when_down: wire.when_down,
            drops: wire.drops,
            peer: returns.max_by_key(|r| rank(*r)).unwrap_or_default(),
        }
    }

    /// Returns each process: its component and the number of the replica.
    #[must_use]
    pub fn processes(&self) -> Vec<(usize, u32)> {
        let each = self.components.iter().enumerate();
        each.flat_map(|(at, c)| (0..c.replicas).map(move |replica| (at, replica)))
            .collect()
    }

    /// Returns the rules of the manager, whose number is 0, and of each process, whose numbers follow.
    #[must_use]
    pub fn rules(&self) -> Vec<Rules> {
        let processes = self.processes();
        let of = |wanted: &[usize]| -> Vec<usize> {
            let all = processes.iter().enumerate();
            all.filter(|(_, (component, _))| wanted.contains(component))
                .map(|(at, _)| at + 1)
                .collect()
        };
        let manager = Rules {
            restart: Returns::Always,
            pause: Duration::from_millis(10),
            ready_in: Some(Duration::from_secs(30)),
            // A manager that fails this often will never start.
            tries: Some(10),
            background: true,
            ..Rules::default()
        };
        let each = processes.iter().map(|(component, replica)| {
            let Component {
                rules, replicas, ..
            } = &self.components[*component];
            let mut after = of(&rules.after);
            after.push(0);
            let mut receivers = of(&rules.receivers);
            // A replica sends to that of its own row, or to a component of one process.
            if *replicas > 1 {
                receivers.retain(|at| {
                    let (to, its) = processes[*at - 1];
                    self.components[to].replicas == 1 || its == *replica
                });
            }
            Rules {
                after,
                receivers,
                ..rules.clone()
            }
        });
        std::iter::once(manager).chain(each).collect()
    }
}
