"""An empirical audit: can somebody who knows everything else tell whether one person was in the released table?"""
