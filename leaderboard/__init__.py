"""The leaderboard: entries that were submitted or published, ranked on boards, and shown on a site."""
