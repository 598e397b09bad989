//! The reference backend with one fault.

mod backend;
mod claim;
mod fetch;
mod meddled;
mod store;

pub(crate) use backend::FaultyBackend;
pub(crate) use meddled::Meddlings;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    DeliversEarly,
    LosesTheOrder,
    AcceptsAnyMode,
    TruncatesBodies,
    RemovesAlways,
    ForgetsFailures,
    ForgetsClaims,
    KnowsNoConflict,
    NextDueCountsHeld,
    CancelLies,
    IgnoresExceptions,
    StoresInPart,
    RenewsInVain,
    FoldsEndpoints,
    Panics,
    // How a backend is set up and opened.
    SetsUpOnce,
    CutsEndpointNames,
    AcceptsANewerSchema,
    LosesMessagesWithAnOlderSchema,
    MakesTablesWhenOpened,
    BlamesNobodyForAMissingRight,
    // What is stored and shown.
    RoundsDown,
    TurnsLongDelaysIntoNone,
    LosesTheRepeatedHour,
    MakesTextOfHeaders,
    StoresInSteps,
    CancelsInSteps,
    CancelsWhatItSawFree,
    SkipsLinesOfAList,
    TakesPrefixesForPatterns,
    ShowsBodies,
    TellsBodies,
    NeverWakes,
    AlwaysWakes,
    // What is fetched, and when.
    BringsTooMany,
    BringsOneAtATime,
    ReadsOnePage,
    KeepsAWatermark,
    HidesContention,
    LosesWhatNobodyTook,
    AsksToComeBackAtOnce,
    NeverHandsOver,
    AsksToComeBackLate,
    StopsAtUnreadableRows,
    PutsAsideWholeBatches,
    LeavesUnreadableRowsDue,
    HidesUnreadableRows,
    // What a claim does.
    RemovesNothing,
    RemovesInSteps,
    CountsInSteps,
    CommitsInSteps,
    CountsReleases,
    CountsDrops,
    KeepsWhatIsDropped,
    IgnoresRetryTimes,
    ForgetsErrors,
    ChokesOnNul,
    KnowsNoFence,
    SettlesOnCommitOnly,
    SettlesAtOnce,
    GivesNothingBack,
}
