import importlib.util

collect_ignore = [] if importlib.util.find_spec("torch") else ["checkpoints_of_towers.py"]
