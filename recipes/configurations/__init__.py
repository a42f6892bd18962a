"""The paper's six configurations and its two dense baselines, trained small: is their order the paper's?"""
