//! How much native code appears between Python frames.

use std::fmt;
use std::str::FromStr;

use crate::{FrameId, FrameKind, Model, StackId};

/// Which native and kernel frames to show in stacks that have Python frames. Stacks without Python frames stay whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Native {
    Full,
    /// All but the interpreter's own frames, whose time belongs to the Python frame that they execute.
    #[default]
    Libraries,
    /// None: a Python frame's own share includes the native code below it.
    None,
}

impl Native {
    pub const ALL: [Self; 3] = [Self::Full, Self::Libraries, Self::None];

    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Libraries => "libraries",
            Self::None => "none",
        }
    }

    /// The next setting when the user presses the key.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::Full => Self::Libraries,
            Self::Libraries => Self::None,
            Self::None => Self::Full,
        }
    }

    /// The frames of a stack, root first.
    pub fn frames(self, model: &Model, stack: StackId) -> impl Iterator<Item = FrameId> + '_ {
        let frames = model.stack(stack);
        let is_whole = self == Self::Full || !frames.iter().any(|id| model.is_python(*id));
        let is_shown = move |id: &FrameId| match self {
            Self::Full => true,
            Self::Libraries => !model.is_interpreter(*id),
            Self::None => model.frame(*id).is_some_and(|frame| frame.kind == FrameKind::Python),
        };
        frames.iter().copied().filter(move |id| is_whole || is_shown(id))
    }
}

impl fmt::Display for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Native {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|native| native.name() == name);
        found.ok_or_else(|| {
            format!("unknown native frames \"{name}\"; expected one of: {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}
